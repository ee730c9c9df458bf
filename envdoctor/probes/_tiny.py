"""A language model of a few thousand parameters and its tokenizer, made on the spot: no download."""

PAD, END, UNKNOWN = "<pad>", "<eos>", "<unk>"
SYMBOLS = (PAD, END, UNKNOWN, *"0123456789abcdefghij:>+")


def tiny_model(vocabulary: int = len(SYMBOLS)):
    """A random two-layer Qwen2 in float32 on the CPU.

    initializer_range 0.3 instead of 0.02, so that logits are of order one and a wrong kernel shows in them.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            initializer_range=0.3,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
        )
    )


def tiny_tokenizer():
    """One token a character. The fast class by name: AutoTokenizer of transformers 5 ignores it for qwen2."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({symbol: n for n, symbol in enumerate(SYMBOLS)}, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )
