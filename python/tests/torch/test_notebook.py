"""The notebook of examples/, run from its first cell to its last in a kernel of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[3] / "examples/see.ipynb"
# A kernel starts in three seconds, on a machine that is busy in many more.
PATIENCE_S = 300


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing of Jupyter and IPython of this machine's user is read or written: their configuration and the
    database of commands, for whose lock a kernel waits. The path is short enough for a socket.
    """
    with tempfile.TemporaryDirectory(prefix="remat-") as folder:
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"):
            path = Path(folder) / name.lower().removeprefix("jupyter_")
            path.mkdir()
            monkeypatch.setenv(name, str(path))
        yield Path(folder)


@pytest.mark.long
def test_the_notebook_runs_and_shows_what_it_makes(own_folder: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="there is no package nbformat")
    nbclient = pytest.importorskip("nbclient", reason="there is no package nbclient")
    pytest.importorskip("ipykernel", reason="there is no package ipykernel")
    if not NOTEBOOK.exists():
        pytest.skip("an installed package comes without examples")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    client = nbclient.NotebookClient(
        notebook, kernel_name="python3", timeout=PATIENCE_S, startup_timeout=PATIENCE_S
    )
    client.create_kernel_manager()
    # Sockets: ports are chosen before the kernel binds them, and another program may have taken one by then.
    client.km.transport, client.km.ip = "ipc", str(own_folder / "kernel")
    client.execute()
    shown = [
        "".join(output.data["text/html"])
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    graph, sweep, plan, report = shown
    assert all("<svg" in each for each in (graph, sweep, plan))
    assert report.startswith("<iframe")
    assert "could not be shown" not in report.partition("<script")[0]
