"""The Debian package, the archive, and the manual pages in them."""

import glob
import hashlib
import os
import re
import shutil
from pathlib import Path

from .support import PACKAGING, ROOT, Skip, expect, program, read_toml, run, scratch, tool, workspace_version, wrapper

CRATE = ROOT / "crates" / "cli"


def metadata() -> dict:
    return read_toml(CRATE / "Cargo.toml")["package"]["metadata"]["deb"]


def check_package() -> None:
    """Builds the package from the metadata, as cargo-deb does, and reads its contents."""
    builder, deb = tool("dpkg-deb"), metadata()
    with scratch() as directory:
        staged, root = directory / "staged", directory / "root"
        run(PACKAGING / "deb" / "stage.sh", wrapper(directory), staged)
        for source, target, mode in deb["assets"]:
            pattern = source.replace("../../target/deb", str(staged)).replace("../..", str(ROOT))
            found = glob.glob(pattern)
            expect(found, f"{source} does not exist")
            for path in found:
                to = root / target / Path(path).name if target.endswith("/") else root / target
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)
                to.chmod(int(mode, 8))
        for file in deb["conf-files"]:
            expect((root / file.lstrip("/")).is_file(), f"conf-file {file} is no asset")
        control = root / "DEBIAN"
        control.mkdir()
        scripts = (CRATE / deb["maintainer-scripts"]).resolve()
        for name in ("postinst", "prerm", "postrm"):
            (control / name).write_text((scripts / name).read_text().replace("#DEBHELPER#", ""))
            (control / name).chmod(0o755)
        (control / "conffiles").write_text("\n".join(deb["conf-files"]) + "\n")
        (control / "control").write_text(
            f"Package: {deb['name']}\nVersion: {workspace_version()}-1\nArchitecture: amd64\nSection: {deb['section']}\n"
            f"Priority: {deb['priority']}\nMaintainer: {deb['maintainer']}\nDescription: A durable job queue\n"
            + "".join(f" {line}\n" for line in deb["extended-description"].splitlines())
        )
        package = directory / "longshore.deb"
        run(builder, "--root-owner-group", "-Znone", "--build", root, package)
        contents = run(builder, "--contents", package)
        for path in ("usr/bin/longshore", "usr/share/man/man1/longshore-serve.1", "usr/lib/systemd/system/longshore.service"):
            expect(f" ./{path}\n" in contents, f"the package lacks {path}")
        expect(not re.search(r"^-\S*w\S* (?!root/root)", contents, re.M), "a file does not belong to root")
        unit = (root / "usr/lib/systemd/system/longshore.service").read_text()
        started = re.search(r"^ExecStart=(\S+)", unit, re.M)[1]
        expect((root / started.lstrip("/")).exists(), f"the unit starts {started}, which is not in the package")
        named = re.search(r"--config (\S+)", unit)[1]
        expect(named in deb["conf-files"], f"the unit reads {named}, which is not in the package")


def check_archive() -> None:
    """The same input gives the same archive."""
    with scratch() as directory:
        small = wrapper(directory)
        sums = []
        for number in ("1", "2"):
            run(PACKAGING / "archive.sh", small, "0.0.0", "test", directory / number)
            archive = directory / number / "longshore-0.0.0-test.tar.gz"
            sums.append(hashlib.sha256(archive.read_bytes()).hexdigest())
        expect(sums[0] == sums[1], "two archives of the same input differ")
        run("sha256sum", "--check", "longshore-0.0.0-test.tar.gz.sha256", cwd=directory / "1")
        names = run("tar", "-tzf", archive).splitlines()
        for name in ("longshore", "man/longshore.1", "completions/_longshore", "systemd/longshore.service", "longshore.toml"):
            expect(f"longshore-0.0.0-test/{name}" in names, f"the archive lacks {name}")


def check_manual() -> None:
    """groff formats every page without a warning."""
    groff = shutil.which("groff")
    if groff is None:
        raise Skip("groff is not installed")
    with scratch() as directory:
        run(program(), "man", directory)
        pages = sorted(os.listdir(directory))
        expect(len(pages) > 40, f"only {len(pages)} pages")
        for name in ("longshore.1", "longshore-serve.1", "longshore-submit.1"):
            expect(name in pages, f"no page {name}")
            run("sh", "-c", f"test -z \"$({groff} -Kutf8 -man -Tutf8 -ww -z {directory / name} 2>&1)\"")
