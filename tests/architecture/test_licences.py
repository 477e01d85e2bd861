"""The licence rule, on made-up licences and on what is installed."""

from types import ModuleType

import pytest

from tests.architecture.tree import load_tool


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    return load_tool("licences")


@pytest.mark.parametrize(
    ("licence", "status"),
    [
        ("MIT", "ok"),
        ("Apache-2.0 AND CNRI-Python", "ok"),
        ("Mozilla Public License 2.0 (MPL 2.0)", "ok"),
        ("LGPL-3.0-only", "lesser"),
        ("GNU Lesser General Public License v3 (LGPLv3)", "lesser"),
        ("GPL-3.0-or-later", "refused"),
        ("GNU General Public License v3 (GPLv3)", "refused"),
        ("AGPL-3.0", "refused"),
        ("GNU Affero General Public License v3", "refused"),
        ("MIT AND GPL-2.0-only", "refused"),
        ("LGPL-2.1-or-later AND GPL-2.0-only", "refused"),
        ("Server Side Public License", "refused"),
        ("MIT OR GPL-2.0-only", "ok"),
        ("GPL-2.0-only OR LGPL-3.0-only", "lesser"),
        ("", "unknown"),
        ("UNKNOWN", "unknown"),
    ],
)
def test_a_licence_is_judged(licences: ModuleType, licence: str, status: str) -> None:
    assert licences.judge("some-package", licence).status == status


def test_what_is_installed_passes(licences: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert licences.main() == 0, capsys.readouterr().out
