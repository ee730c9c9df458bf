"""Images that copy the packages of another stage without its programs."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

BUILD = "FROM python:3.11 AS build\nRUN pip install torch==2.6.0 uvicorn\n"
LIB = "/usr/local/lib/python3.11/site-packages"
FINAL = f"{BUILD}FROM python:3.11-slim\nCOPY --from=build {LIB} {LIB}\n"
START = 'CMD ["uvicorn", "app:app", "--host", "0.0.0.0"]\n'
WRONG = {
    "uvicorn": (FINAL + "COPY . /app\n" + START, 6),
    "a number of the stage": (
        FINAL.replace("--from=build", "--from=0") + 'ENTRYPOINT ["streamlit", "run", "a.py"]\n',
        5,
    ),
    "the shell form": (FINAL + "EXPOSE 80\nCMD exec gunicorn app:app\n", 6),
    "a model as well": (FINAL + "COPY --from=build /models/a.onnx /a.onnx\n" + START, 6),
}
SOUND = {
    "programs as well": FINAL + "COPY --from=build /usr/local/bin /usr/local/bin\n" + START,
    "one program": FINAL + "COPY --from=build /usr/local/bin/uvicorn /usr/local/bin/\n" + START,
    "a module": FINAL + 'CMD ["python", "-m", "uvicorn", "app:app"]\n',
    "an installation": FINAL + "RUN pip install uvicorn\n" + START,
    "an environment": BUILD + "FROM python:3.11-slim\nCOPY --from=build /opt/venv /opt/venv\n" + START,
    "a directory of unknown content": FINAL + "COPY --from=build /install /usr/local\n" + START,
    "one stage": BUILD + START,
}


def _lines(text: str) -> list[int]:
    found = audit_text(text, "Dockerfile", None, NoSolver()).result.findings
    return [each.line for each in found if each.id == "RUN250"]


@each_case("name", WRONG)
def test_an_image_copies_packages_only(name: str) -> None:
    text, line = WRONG[name]
    assert _lines(text) == [line]


@each_case("name", SOUND)
def test_an_image_has_its_program(name: str) -> None:
    assert _lines(SOUND[name]) == []
