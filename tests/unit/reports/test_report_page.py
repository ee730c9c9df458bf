"""Tests of `envdoctor report --output report.html`: content, redaction, escaping, and the page in a browser."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
import support.sensitive_samples as samples
from support.browser import CHROMIUM, browser
from support.command import envdoctor
from support.html_pages import page_text, parse_page
from support.report_pages import make_check, make_stack, store_results, write_run
from support.sample_environments import add_torch, make_venv

from envdoctor.commands.check import CheckResult
from envdoctor.commands.report.contents import page_contents
from envdoctor.core.records import Distribution, Evidence, Finding, known
from envdoctor.core.remedies import Remedy, UserCommand, remedy_of, steps
from envdoctor.output.check import verdict
from envdoctor.output.html import to_html
from envdoctor.output.report_page import report_page
from envdoctor.output.text import Text, Verbatim, command, indent, table
from envdoctor.redact.identity import Identity

IDENTITY = Identity(
    users=frozenset({"mira"}), hosts=frozenset({"athena"}), secrets=frozenset({"s3cr3t-of-the-environment"})
)
HOME = Path("/home/mira")
HOSTILE = "</code></pre></details><script>alert(1)</script>"


def hostile_step(text: str) -> tuple[Remedy, ...]:
    """A remedy that `steps` refuses to make of a foreign text."""
    return (remedy_of([UserCommand(command=text)]),)


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "venv" / "bin" / "python"


def page_of(check: CheckResult, tmp_path: Path) -> str:
    contents = page_contents(check, logs=tmp_path / "logs", runs=tmp_path / "runs", identity=IDENTITY, home=HOME)
    return report_page(contents)


def full_page(python: Path, tmp_path: Path, text: str = "") -> str:
    """A page with every part, and `text` in all of them."""
    stack = make_stack(python, Distribution(name="mine", version="1.0", source=text))
    finding = Finding(
        "GPU999", "x", "error", f"found {text}", (Evidence("gpus", text, text),), f"Fix {text}", hostile_step(text)
    )
    check = make_check(stack, finding)
    store_results(python, check, f"measured {text}")
    write_run(tmp_path / "runs", log=f"step 1 {text}\nstep 2")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "install-cpu-1.log").write_text(f"error: {text}\nend")
    return page_of(check, tmp_path)


def test_page_has_every_part_with_the_verdict_of_check_first(python: Path, tmp_path: Path) -> None:
    text = full_page(python, tmp_path)
    root = parse_page(text)
    headings = [page_text(each) for each in root.iter() if str(each.tag) in ("h1", "h2")]
    others = ["Problems", "Next command", "Facts", "Probes", "Benchmark", "Newest training run", "Logs"]
    assert headings[1:] == others
    check = make_check(make_stack(python), Finding("GPU999", "x", "error", ""))
    assert headings[0] == " ".join(verdict(check).plain.split())
    assert headings[0].startswith("✗ 2 errors in ")
    shown = page_text(root)
    for part in (
        "DRV001 kernel module 550.144.03, driver libraries 580.159.04", "forward_error 0.0508 (limit 1)",
        "4270 GB/s", "3870 to 4800", "failing", "possible causes:", "1 probe unavailable", "sort-1: 200 steps",
        "Entropy nats per token", "vllm 0.26.0 uv", "error:", "held-out rows, greedy", "✗ not verified",
    ):  # fmt: skip
        assert part in shown.replace("vllm0.26.0uv", "vllm 0.26.0 uv"), part
    assert len(text) < 200_000
    copied = [page_text(each) for each in root.iter("pre") if each.get("class") == "command"]
    assert "docker restart CONTAINER" in copied
    assert [each for each in copied if "--python" in each] == []  # no command of `verify`, with a quoted tilde
    assert shown.index("✗ not verified") < shown.index("forward_error 0.0508")


def test_page_without_environment_and_runs(tmp_path: Path) -> None:
    root = parse_page(page_of(make_check(None), tmp_path))
    assert [page_text(each) for each in root.iter("h2")] == ["Problems", "Next command", "Facts"]


@pytest.mark.usefixtures("csv_limit")
def test_a_run_without_steps_and_unreadable_results_are_mentioned(python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    (run / "metrics.csv").write_text("step,reward\n")
    (run / "events.jsonl").unlink()
    (tmp_path / "state" / "envdoctor" / "verifications").mkdir(parents=True)
    from envdoctor.verify.stored_results import bench_path

    bench_path(python).write_text("{}")
    text = page_text(parse_page(page_of(make_check(make_stack(python)), tmp_path)))
    assert "sort-1: 0 steps" in text
    assert "No step is recorded yet." in text
    assert "No verification of this environment is stored." in text
    assert "has schema None" in text
    (run / "metrics.csv").write_text("step,reward\n1," + "9" * 200_000 + "\n")
    assert "is not a CSV file" in page_text(parse_page(page_of(make_check(None), tmp_path)))


def test_hostile_text_stays_text(python: Path, tmp_path: Path) -> None:
    text = full_page(python, tmp_path, HOSTILE)
    root = parse_page(text)
    assert page_text(root).count(HOSTILE) >= 9
    assert "<script>alert" not in text


def test_sensitive_text_is_redacted_in_every_part(python: Path, tmp_path: Path) -> None:
    secrets = {
        **{around.format(samples.PASSWORD): samples.PASSWORD for around in samples.NAMED},
        **{token: token for token in samples.TOKENS.values()},
        **{around.format(samples.USER): samples.USER for around in samples.USERS},
        **{around.format(samples.HOST): samples.HOST for around in samples.HOSTS},
        **{address: address for address in (*samples.ADDRESSES, *samples.EMAILS)},
        "mira was on athena with s3cr3t-of-the-environment": "athena",
    }
    text = full_page(python, tmp_path, "\n".join(secrets))
    for secret in (*secrets.values(), "mira", "s3cr3t"):
        assert secret not in text
    assert "Removed: " in text
    assert "secrets, " in text


def test_secret_names_of_metrics_are_redacted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    (run / "metrics.csv").write_text("step,reward,mira,mira_smooth\n1,2,3,3\n")
    text = page_of(make_check(None), tmp_path)
    assert "mira" not in text
    assert "<h3>&lt;user&gt;</h3>" in text


def test_the_home_directory_is_a_tilde_that_the_shell_expands(python: Path, tmp_path: Path) -> None:
    commands = (
        "uv pip install --python /home/mira/venv/bin/python torch", "source '/home/mira/my env/bin/activate'",
        "ls /data/home/mira /home/mira",
    )  # fmt: skip
    finding = Finding(
        "GPU999", "x", "error", "in /home/mira/.cache", (Evidence("a", "'/home/mira/x'", "b"),), "", steps(*commands)
    )
    stack = msgspec.structs.replace(
        make_stack(python), python=known("/home/mira/venv/bin/python", "/home/mira/x.cfg")
    )
    root = parse_page(page_of(make_check(stack, finding), tmp_path))
    copied = [page_text(each) for each in root.iter("pre") if each.get("class") == "command"]
    assert copied[-4:-1] == [
        "uv pip install --python ~/venv/bin/python torch", "source ~/'my env/bin/activate'",
        "ls /data/home/<user> ~",
    ]  # fmt: skip
    text = page_text(root)
    assert "in ~/.cache" in text
    assert "a: '~/x' (b)" in text
    assert "/home/mira" not in text


def test_the_command_writes_a_page_by_the_suffix(tmp_path: Path) -> None:
    venv = make_venv(tmp_path / "venv")
    add_torch(venv)
    write_run(tmp_path / "runs")
    done = envdoctor("report", tmp_path / "venv", "--output", "report.html", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    text = (tmp_path / "report.html").read_text()
    root = parse_page(text)
    assert "~/venv, Python" in page_text(root)
    assert str(tmp_path) not in text
    assert os.uname().nodename not in text
    done = envdoctor("report", "--output", "/no/such/folder/x.html", home=tmp_path)
    assert (done.returncode, "No such file or directory" in done.stderr) == (2, True)


def test_parts_as_html() -> None:
    rows = table("name", "s")
    rows.add_row(Text("a<b", style="ok"), "1.5")
    listed = table("a", "b")
    listed.add_row("1", "2")
    listed.add_detail(Text("  more", style="dim"))
    assert '<td>2<br><span class="muted">more</span></td>' in to_html([listed], "x")
    parts = [
        Text("Title", style="title"), rows, indent(Text("a `b c` d")), command("x > y"), Verbatim("1\n2"),
        Text.assemble("a  b", wrap=False), indent(Text("x\ny")),
        Text("https://x.y/?a&b", style="dim"), Text.assemble(("✗ ", "crashed"), ("/p q", "path"), ("n", "name")),
        Text(),
    ]  # fmt: skip
    assert to_html(parts) == "\n".join((
        "<h3><strong>Title</strong></h3>",
        '<div class="table" tabindex="0" role="group" aria-label="Title"><table>', "<caption>Title</caption>",
        '<thead><tr><th scope="col">name</th><th scope="col" class="number">s</th></tr></thead>', "<tbody>",
        '<tr><th scope="row"><span class="ok">a&lt;b</span></th><td class="number">1.5</td></tr>', "</tbody>",
        "</table></div>", "<p>a <code>b c</code> d</p>",
        '<pre tabindex="0" class="command"><code>x &gt; y</code></pre>',
        '<pre tabindex="0"><code>1', "2</code></pre>",
        "<p>a\N{EM SPACE}b</p>", '<pre tabindex="0"><code>x', "y</code></pre>",
        '<p><a href="https://x.y/?a&amp;b" rel="noreferrer noopener">https://x.y/?a&amp;b</a></p>',
        '<p><span class="error">✗ </span><code>/p q</code>n</p>',
    ))  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_page_in_a_browser(python: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(full_page(python, tmp_path, "x" * 300 + HOSTILE), encoding="utf-8")
    with browser(tmp_path / "browser") as page:
        for width in (320, 400, 1200):
            for dark in (False, True):
                page.show(path.as_uri(), width=width, dark=dark)
                page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
                assert page.evaluate("document.documentElement.scrollWidth") <= width
        wrapped = "[...document.querySelectorAll('pre')].some((each) => getComputedStyle(each).whiteSpace !== 'pre')"
        assert page.evaluate(wrapped) is False, "commands are scrolled, not wrapped"
        page.evaluate("document.querySelector('.copy button').click()")
        assert page.evaluate("getSelection().toString()").startswith("sudo rmmod nvidia_uvm nvidia_drm")
        page.evaluate("document.querySelector('.chart svg').focus()")
        page.press("End")
        assert "step 200" in page.evaluate("document.querySelector('.tip').innerText")
        assert (page.messages, list(page.requests.values())) == ([], [path.as_uri()])
