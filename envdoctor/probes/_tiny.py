"""Language models of a few thousand parameters and a tokenizer, made on the spot: no download."""

PAD, END, UNKNOWN = "<pad>", "<eos>", "<unk>"
SYMBOLS = (PAD, END, UNKNOWN, *"0123456789abcdefghij:>+")


def tiny_model(vocabulary: int = len(SYMBOLS)):
    """A random two-layer Qwen2 in float32 on the CPU.

    initializer_range is 0.3 instead of 0.02, so that logits are of order one and show a wrong kernel.
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
    """One token per character. AutoTokenizer of transformers 5 ignores such a tokenizer for qwen2."""
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


def gpt_oss(width: int, experts: int, head: int, **rest):
    """A random gpt-oss with four experts per token. `head`: the head dimension."""
    from transformers import GptOssConfig, GptOssForCausalLM

    return GptOssForCausalLM(
        GptOssConfig(
            vocab_size=64, hidden_size=width, intermediate_size=width, num_local_experts=experts,
            num_experts_per_tok=4, num_attention_heads=4, num_key_value_heads=2, head_dim=head,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, pad_token_id=0, **rest,
        )
    )  # fmt: skip


def tiny_llama(vocabulary: int):
    """Two layers with head dimension 64, which every attention backend of vLLM supports, and distinct logits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, initializer_range=0.2,
            tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        )
    ).eval()  # fmt: skip
