"""Package sources of pip's configuration, converted for uv and compared with pip itself."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.command import envdoctor, envelope
from support.local_packages import Index, serve, write_cpu_torch, write_profile, write_wheel
from support.pip import pip

from envdoctor.core.errors import BadInput
from envdoctor.download.sources import Sources, config_files, read_sources, source_name, uv_arguments, uv_environment

MIRROR = "https://mirror.example/simple"


def environ(home: Path, **extra: str) -> dict[str, str]:
    """Variables that hide this machine's pip configuration, except /etc/pip.conf and SITE/pip.conf."""
    return {"HOME": str(home), "XDG_CONFIG_DIRS": str(home / "xdg"), "PATH": os.environ["PATH"], **extra}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def pip_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """The settings of `pip install` according to `pip config list`: [global], then [install], then variables."""

    def pip_config(*arguments: str) -> str:
        command = [*pip(), "config", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=dict(variables), check=True).stdout

    lines = [line.partition("=") for line in pip_config("list").splitlines()]
    names = [name for name, _, _ in lines]
    settings: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for name, _, value in lines:
            if name.startswith(section):  # pip 26 lists the values of all files, in no order of precedence
                effective = value if names.count(name) == 1 else pip_config("get", name).strip()
                if effective.strip("'\""):
                    settings[name.removeprefix(section)] = effective.strip("'\"")
    return settings


PLACES = {
    "xdg": "xdg/pip/pip.conf",
    "legacy": ".pip/pip.conf",
    "user": ".config/pip/pip.conf",
    "xdg home": "elsewhere/pip/pip.conf",
    "named": "named.conf",
}
# Configuration files and variables of each case. The expected settings come from pip itself.
CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "shared": ({"xdg": "[global]\nindex-url = https://a/s\n"}, {}),
    "legacy over shared": (
        {"xdg": "[global]\nindex-url = https://a/s\n", "legacy": "[global]\nindex-url = https://b/s\n"}, {}),
    "user over legacy": (
        {"legacy": "[global]\nindex-url = https://b/s\n", "user": "[global]\nindex-url = https://c/s\n"}, {}),
    "install over global, even of a later file": (
        {"xdg": "[install]\nindex-url = https://a/simple\n", "user": "[global]\nindex-url = https://c/simple\n"}, {}),
    "XDG_CONFIG_HOME": (
        {"xdg home": "[global]\nindex-url = https://x/simple\n", "user": "[global]\nindex-url = https://c/simple\n"},
        {"XDG_CONFIG_HOME": "{home}/elsewhere"}),
    "PIP_CONFIG_FILE": (
        {"named": "[global]\nindex-url = https://n/s\n"}, {"PIP_CONFIG_FILE": "{home}/named.conf"}),
    "PIP_CONFIG_FILE switches the user's off": (
        {"named": "[global]\ntimeout = 3\n", "user": "[global]\nindex-url = https://c/simple\n",
         "xdg": "[global]\nextra-index-url = https://a/simple\n"}, {"PIP_CONFIG_FILE": "{home}/named.conf"}),
    "PIP_CONFIG_FILE that does not exist": (
        {"user": "[global]\nindex-url = https://c/simple\n"}, {"PIP_CONFIG_FILE": "{home}/none.conf"}),
    "PIP_CONFIG_FILE=/dev/null": (
        {"user": "[global]\nindex-url = https://c/simple\n", "xdg": "[install]\ntimeout = 9\n"},
        {"PIP_CONFIG_FILE": "/dev/null"}),
    "variable over file": (
        {"user": "[install]\nindex-url = https://c/simple\n"}, {"PIP_INDEX_URL": "https://v/simple"}),
    "empty variable": ({"user": "[install]\nindex-url = https://c/simple\n"}, {"PIP_INDEX_URL": ""}),
    "empty value hides a lower file's": (
        {"xdg": "[global]\nindex-url = https://a/simple\n", "user": "[global]\nindex-url =\n"}, {}),
    "empty value in install hides nothing of global": (
        {"user": "[global]\nindex-url = https://c/simple\n[install]\nindex-url =\n"}, {}),
    "other spellings": ({"user": "[global]\nindex_url = https://c/simple\n--Timeout = 7\n"}, {}),
    "every setting": (
        {"user": "[global]\nindex-url = https://c/simple\nextra-index-url =\n    https://d/simple\n    https://e/simple\n"
                 "find-links = /\ncert = /c.pem\nclient-cert = /k.pem\nproxy = http://p:3128\ntimeout = 4\n"
                 "trusted-host = c d\nno-index = yes\n"}, {}),
    "every variable": ({}, {
        "PIP_INDEX_URL": "https://c/simple", "PIP_EXTRA_INDEX_URL": "https://d/simple https://e/simple",
        "PIP_FIND_LINKS": "/ /usr", "PIP_CERT": "/c.pem", "PIP_CLIENT_CERT": "/k.pem", "PIP_PROXY": "http://p:3128",
        "PIP_DEFAULT_TIMEOUT": "4", "PIP_TRUSTED_HOST": "c d", "PIP_NO_INDEX": "1"}),
    "the other name of timeout in a variable": ({"user": "[global]\ntimeout = 4\n"}, {"PIP_DEFAULT_TIMEOUT": "6"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_settings_equal_those_of_pip(case: str, tmp_path: Path) -> None:
    files, variables = CASES[case]
    for place, text in files.items():
        write(tmp_path / PLACES[place], text)
    environment = environ(tmp_path, **{name: value.format(home=tmp_path) for name, value in variables.items()})
    expected, sources = pip_settings(environment), read_sources(environment)
    timeouts = [expected[name] for name in ("timeout", "default-timeout") if name in expected]
    assert sources.index == expected.get("index-url", "")
    assert list(sources.extra_indexes) == expected.get("extra-index-url", "").replace("\\n", " ").split()
    assert list(sources.find_links) == expected.get("find-links", "").split()
    assert sources.cert == expected.get("cert", "")
    assert sources.client_cert == expected.get("client-cert", "")
    assert sources.proxy == expected.get("proxy", "")
    assert sources.timeout == (timeouts[-1] if timeouts else "")
    assert " ".join(sources.trusted_hosts) == expected.get("trusted-host", "")
    assert sources.no_index == bool(expected.get("no-index"))


def test_files_are_read_in_pips_order(tmp_path: Path) -> None:
    for place in ("xdg", "legacy", "user"):
        write(tmp_path / PLACES[place], "[global]\n")
    files = [path for path in config_files(environ(tmp_path)) if path.is_relative_to(tmp_path)]
    assert files == [tmp_path / PLACES[place] for place in ("xdg", "legacy", "user")]


@pytest.mark.parametrize("value", ["y", "Yes", "t", "TRUE", "on", "1", "no", "0", "off"])
def test_no_index_is_parsed_like_pip(value: str, tmp_path: Path) -> None:
    from pip._internal.utils.misc import strtobool

    assert read_sources(environ(tmp_path, PIP_NO_INDEX=value)).no_index == bool(strtobool(value))


def test_descriptions_contain_the_origin(tmp_path: Path) -> None:
    conf = write(tmp_path / PLACES["user"], f"[global]\nindex-url = {MIRROR}\n")
    sources = read_sources(
        environ(tmp_path, PIP_FIND_LINKS="/usr /nowhere/wheels", PIP_EXTRA_INDEX_URL="https://e/s")
    )
    assert sources.descriptions() == [
        "find-links /usr (PIP_FIND_LINKS)",
        "find-links /nowhere/wheels (PIP_FIND_LINKS; does not exist)",
        "extra-index-url https://e/s (PIP_EXTRA_INDEX_URL)",
        f"index-url {MIRROR} ({conf})",
    ]


def test_default_source_is_pypi(tmp_path: Path) -> None:
    sources = read_sources(environ(tmp_path, PIP_CONFIG_FILE="/dev/null"))
    assert sources.descriptions() == ["PyPI"]
    assert uv_environment(sources).keys() == {"UV_HTTP_CONNECT_TIMEOUT"}


def test_no_index_disables_configured_indexes(tmp_path: Path) -> None:
    sources = read_sources(environ(tmp_path, PIP_CONFIG_FILE="/dev/null", PIP_NO_INDEX="1", PIP_INDEX_URL=MIRROR))
    assert sources.descriptions() == ["nothing (no-index in PIP_NO_INDEX, and no find-links)"]
    assert uv_arguments(sources) == ["--no-index"]


def test_sources_become_variables_of_uv() -> None:
    variables = uv_environment(
        Sources(
            index="https://c/simple", extra_indexes=("https://d/simple", "https://e/simple"), find_links=("/a", "/b"),
            cert="/c.pem", client_cert="/k.pem", proxy="http://p:3128", timeout="4", trusted_hosts=("c", "d"),
            index_strategy="unsafe-best-match",
        )
    )  # fmt: skip
    assert variables == {
        "UV_DEFAULT_INDEX": "https://c/simple",
        "UV_INDEX": "https://d/simple https://e/simple",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "c d",
        "UV_HTTP_TIMEOUT": "4",
        "UV_HTTP_CONNECT_TIMEOUT": "5",
        "SSL_CERT_FILE": "/c.pem",
        "SSL_CLIENT_CERT": "/k.pem",
        "HTTP_PROXY": "http://p:3128",
        "HTTPS_PROXY": "http://p:3128",
    }


def test_variables_of_uv_take_precedence(tmp_path: Path) -> None:
    write(tmp_path / PLACES["user"], "[global]\nindex-url = https://c/simple\nextra-index-url = https://d/simple\n")
    environment = environ(
        tmp_path, UV_DEFAULT_INDEX="https://u/simple", UV_INDEX="mirror=https://m/simple", PIP_TIMEOUT="9",
        UV_EXTRA_INDEX_URL="https://o/simple", UV_HTTP_TIMEOUT="3", UV_FIND_LINKS="/usr,/", UV_INSECURE_HOST="u",
        PIP_TRUSTED_HOST="p", PIP_FIND_LINKS="/etc",
    )  # fmt: skip
    sources = read_sources(environment)
    assert sources.index == "https://u/simple"
    assert sources.extra_indexes == ("mirror=https://m/simple", "https://o/simple")
    assert (sources.timeout, sources.find_links, sources.trusted_hosts) == ("3", ("/usr", "/"), ("u",))
    assert sources.origins["extra-index-url"] == "UV_INDEX and UV_EXTRA_INDEX_URL"
    # With indexes from variables of uv, the default strategy of uv applies.
    assert "UV_INDEX_STRATEGY" not in uv_environment(sources)


def test_configured_index_strategy_takes_precedence(tmp_path: Path) -> None:
    environment = environ(tmp_path, PIP_EXTRA_INDEX_URL=MIRROR, UV_INDEX_STRATEGY="first-index")
    assert uv_environment(read_sources(environment))["UV_INDEX_STRATEGY"] == "first-index"


def test_relative_find_links_are_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    monkeypatch.chdir(tmp_path)
    sources = read_sources(environ(tmp_path, PIP_FIND_LINKS="wheels ~/wheels https://h/links file:///usr"))
    assert sources.find_links[0] == str(tmp_path / "wheels")
    assert sources.find_links[-2:] == ("https://h/links", "file:///usr")


@pytest.mark.parametrize(("timeout", "rounded"), [("2.5", "3"), ("15", "15"), ("0.01", "1"), ("0", "1")])
def test_timeout_is_rounded_up_to_seconds(timeout: str, rounded: str, tmp_path: Path) -> None:
    """uv does not start with UV_HTTP_TIMEOUT=2.5."""
    assert read_sources(environ(tmp_path, PIP_TIMEOUT=timeout)).timeout == rounded


@pytest.mark.parametrize("timeout", ["soon", "nan", "inf"])
def test_invalid_timeout_is_an_error(timeout: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=rf"timeout '{timeout}' \(PIP_TIMEOUT\)"):
        read_sources(environ(tmp_path, PIP_TIMEOUT=timeout))


INVALID_FILES = {
    "no section": b"index-url = https://user:secret@c/simple\n",
    "duplicate key": b"[global]\nindex-url = https://user:secret@c/simple\nindex-url = https://user:secret@d/simple\n",
    "line without a key": b"[global]\nhttps//user.secret\n",
    "not UTF-8": b"[global]\nindex-url = \xff\xfe\n",
}


@pytest.mark.parametrize("case", INVALID_FILES)
def test_error_for_an_invalid_file_contains_its_path_and_no_content(case: str, tmp_path: Path) -> None:
    conf = tmp_path / PLACES["user"]
    conf.parent.mkdir(parents=True)
    conf.write_bytes(INVALID_FILES[case])
    done = envdoctor("resolve", "--profile", "cpu", home=tmp_path, PIP_CONFIG_FILE="", COLUMNS="400")
    assert done.returncode == 2
    assert str(conf) in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///opt/wheels/a.whl", "find-links /opt/wheels"),
        ("file:///opt/wheels-more/a.whl", "find-links /opt/wheels-more/"),
        ("file:///opt/gr%C3%B6%C3%9Fe/a.whl", "find-links file:///opt/größe"),
        ("https://h/one/files/a.whl", "index https://***@h/one/simple"),
        ("https://h/oneandmore/files/a.whl", "index https://h/oneandmore/simple"),
        ("https://m/files/a.whl", "index https://***@m/simple/"),
        ("https://elsewhere/a.whl", "index https://***@m/simple/"),
        ("https://pytorch.example/whl/a.whl", "the PyTorch index (cpu)"),
    ],
)
def test_source_name_of_a_wheel(url: str, message: str) -> None:
    sources = Sources(
        find_links=("/opt/wheels", "/opt/wheels-more/", "file:///opt/größe"),
        extra_indexes=("named=https://user:secret@h/one/simple", "https://h/oneandmore/simple"),
        index="https://user:secret@m/simple/",
    )
    assert source_name(url, sources, "cpu") == message


@pytest.mark.parametrize(
    "proxy", ["http://user:secret@127.0.0.1:{port}", "user:secret@127.0.0.1:{port}", "127.0.0.1:{port}"]
)
def test_proxy_is_used_and_its_password_is_not_printed(proxy: str, tmp_path: Path) -> None:
    """The proxy is a web server that records its requests."""
    write_wheel(tmp_path / "wheels", "alpha", "1.0")
    profile = write_profile(tmp_path / "p.toml", "alpha")
    with serve(Index({"main": tmp_path / "wheels"}, status=404)) as index:
        variables = settings(
            PIP_PROXY=proxy.format(port=index.port),
            PIP_INDEX_URL="http://packages.invalid/simple/",
            NO_PROXY="",
            no_proxy="",
        )
        done = envdoctor("resolve", "--profile", profile, home=tmp_path, **variables)
        assert index.requests[0] == "http://packages.invalid/simple/alpha/"
    assert "secret" not in done.stdout + done.stderr


def settings(**extra: str) -> dict[str, str]:
    """Variables that replace this machine's pip configuration."""
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "NO_PROXY": "127.0.0.1", **extra}


def test_index_with_a_password_is_used(tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "alpha", "1.0")
    write_cpu_torch(tmp_path / "wheels")
    profile = write_profile(tmp_path / "p.toml", "torch==9.9.0+cpu", "alpha")
    with serve(Index({"main": tmp_path / "wheels"}, user="user:secret")) as index:
        variables = settings(PIP_INDEX_URL=index.url(user="user:secret"))
        done = envdoctor("resolve", "--profile", profile, "--format", "json", home=tmp_path, **variables)
        assert done.returncode == 0, done.stderr
        (result,) = envelope(done)["data"]["results"]
        packages = {package["name"]: package for package in result["resolution"]["lock"]["packages"]}
        assert packages.keys() == {"alpha", "torch"}
        assert {package["source"] for package in packages.values()} == {
            f"index http://***@127.0.0.1:{index.port}/main/simple/"
        }
        assert "/main/simple/alpha/" in index.requests
        wrong_password = settings(PIP_INDEX_URL=index.url(user="user:forgotten"))
        failed = envdoctor("resolve", "--profile", profile, home=tmp_path, COLUMNS="900", **wrong_password)
    assert failed.returncode == 3
    assert "returned 401 Unauthorized" in failed.stdout + failed.stderr
    assert "secret" not in done.stdout + done.stderr
    assert "forgotten" not in failed.stdout + failed.stderr


def test_index_of_a_pip_configuration_file_is_used(tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "alpha", "1.0")
    profile = write_profile(tmp_path / "p.toml", "alpha")
    with serve(Index({"main": tmp_path / "wheels"})) as index:
        write(tmp_path / PLACES["user"], f"[global]\nindex-url = {index.url()}\n[install]\nfind-links =\n")
        variables = settings(PIP_CONFIG_FILE="")
        done = envdoctor("resolve", "--profile", profile, "--format", "json", home=tmp_path, **variables)
        assert done.returncode == 0, done.stdout
        assert "/main/simple/alpha/" in index.requests


def test_best_version_of_all_indexes_is_selected_like_pip(tmp_path: Path) -> None:
    write_wheel(tmp_path / "main", "alpha", "2.0")
    write_wheel(tmp_path / "more", "alpha", "1.0")
    write_wheel(tmp_path / "more", "beta", "1.0", requires=["alpha"])
    profile = write_profile(tmp_path / "p.toml", "beta")
    with serve(Index({"main": tmp_path / "main", "more": tmp_path / "more"})) as index:
        variables = settings(PIP_INDEX_URL=index.url(), PIP_EXTRA_INDEX_URL=index.url("more"))
        done = envdoctor("resolve", "--profile", profile, "--format", "json", home=tmp_path, **variables)
        pip_report = subprocess.run(
            [*pip(), "install", "--dry-run", "--quiet", "--no-cache-dir",
             "--ignore-installed", "--report", "-", "beta"],
            capture_output=True, text=True, env=environ(tmp_path, **variables), check=True,
        )  # fmt: skip
        reported = (entry["metadata"] for entry in json.loads(pip_report.stdout)["install"])
        pip_versions = {metadata["name"]: metadata["version"] for metadata in reported}
        packages = envelope(done)["data"]["results"][0]["resolution"]["lock"]["packages"]
        versions = {package["name"]: package["version"] for package in packages}
        assert versions == pip_versions == {"alpha": "2.0", "beta": "1.0"}
        assert [package["source"].rpartition("/main")[1] for package in packages] == ["/main", ""]


def test_missing_find_links_folder_is_ignored_like_pip(tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "alpha", "1.0")
    profile = write_profile(tmp_path / "p.toml", "alpha")
    variables = settings(PIP_NO_INDEX="1", PIP_FIND_LINKS=f"{tmp_path}/nowhere {tmp_path}/wheels")
    done = envdoctor("resolve", "--profile", profile, home=tmp_path, **variables)
    assert done.returncode == 0, done.stdout
