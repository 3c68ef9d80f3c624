"""Who may read what is created."""

import os
import subprocess
from pathlib import Path

import pytest

from streaming.settings.created_files import created_files


@pytest.mark.parametrize(
    ("setting", "file_mode", "folder_mode"), [("off", 0o600, 0o700), ("on", 0o640, 0o750)]
)
def test_files_are_the_users_and_the_groups_where_that_is_set_whatever_the_umask(
    tmp_path: Path, setting: str, file_mode: int, folder_mode: int
) -> None:
    umask = os.umask(0o002)
    try:
        with created_files(setting):
            subprocess.run(["/bin/sh", "-c", "touch file; mkdir folder"], cwd=tmp_path, check=True)
        with pytest.raises(KeyError), created_files(setting):
            raise KeyError
        (tmp_path / "after").touch()
    finally:
        os.umask(umask)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"file": file_mode, "folder": folder_mode, "after": 0o664}
