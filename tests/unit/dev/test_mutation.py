"""The groups of the mutation sample name files that are there; a mutant changes behaviour, not words."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.mutants import mutants_of
from dev.mutation import CODE, GROUPS, ROOT, Group, matched

SOURCE = '''
"""Text 1."""
@dataclass(slots=True, kw_only=True)
class Limit:
    """Text 2."""
    most: Annotated[int, 3]
    def over(self, used: int) -> bool:
        """Text 4."""
        _log.info("used", used=used + 5)
        return used > self.most
'''


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_every_glob_matches(group: Group) -> None:
    """Rule: a module or test file that was renamed does not leave its group unnoticed."""
    assert matched(ROOT / CODE, group.modules)
    assert matched(ROOT / "tests", group.tests)


def test_a_glob_without_a_file_is_an_error(tmp_path: Path) -> None:
    """Rule: the error names the glob; files that several globs match are there once."""
    (tmp_path / "there.py").touch()
    assert matched(tmp_path, ("*.py", "there.py")) == [tmp_path / "there.py"]
    with pytest.raises(FileNotFoundError, match="gone"):
        matched(tmp_path, ("there.py", "gone*.py"))


def test_words_types_and_decorators_are_no_mutants(tmp_path: Path) -> None:
    """Rule: nothing is changed that no test could notice."""
    path = tmp_path / "limit.py"
    path.write_text(SOURCE)
    assert [(item.old, item.new) for item in mutants_of(path)] == [
        ("return used > self.most", "return None"),
        ("used > self.most", "(used <= self.most)"),
        ("used > self.most", "(used >= self.most)"),
    ]
