"""Which tenth of the slow checks is due: ten commits see all, and a commit always sees the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import tenth

COMMIT = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "--quiet"]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tenth, "ROOT", tmp_path)
    tenth.git("init", "--quiet")
    return tmp_path


def test_ten_commits_see_all_and_a_commit_sees_the_same(repository: Path) -> None:
    found = []
    for n in range(12):
        (repository / "file").write_text(str(n))
        tenth.git("add", "file")
        tenth.git(*COMMIT, "-m", str(n))
        found.append(tenth.due())
    assert sorted(found[1:11]) == list(tenth.TENTHS)
    tenth.git("checkout", "--quiet", "HEAD~3")
    assert tenth.due() == found[8]


def test_where_the_history_is_not_there_the_tree_tells(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "file").write_text("what is checked")
    tenth.git("add", "file")
    tenth.git(*COMMIT, "-m", "the one that counts")
    alone = tenth.due()
    (repository / "other").touch()
    tenth.git("add", "other")
    tenth.git(*COMMIT, "-m", "another tree")
    tenth.git("rm", "--quiet", "other")
    tenth.git(*COMMIT, "-m", "the same tree as the first")
    shallow = tmp_path_factory.mktemp("shallow")
    address = f"file://{repository}"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", address, str(shallow)], check=True)
    monkeypatch.setattr(tenth, "ROOT", shallow)
    assert tenth.due() == alone == tenth.of(tenth.git("rev-parse", "HEAD^{tree}"))
