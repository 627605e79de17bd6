# Runs pip in the WebAssembly guest. packages.Python puts the settings in.
def _paddock_install(settings):
    import contextlib, importlib, io, json, os, sys, tempfile, types

    settings = json.loads(settings)
    added = []

    def give(owner, name, value):
        if not hasattr(owner, name):
            setattr(owner, name, value)
            added.append((owner, name))

    # What pip asks of an operating system that is not here.
    for name, value in {"getuid": 1000, "geteuid": 1000, "getgid": 1000, "getegid": 1000, "umask": 0o22}.items():
        give(os, name, lambda *a, value=value: value)
    for name in ("chown", "chmod"):
        give(os, name, lambda *a, **k: None)
    before = set(sys.modules)
    stand_ins = {}
    for name, members in {"mmap": {"mmap": type("mmap", (), {}), "ACCESS_READ": 1}}.items():
        try:
            importlib.import_module(name)
        except ImportError:
            stand_ins[name] = types.ModuleType(name)
            vars(stand_ins[name]).update(members)
            sys.modules[name] = stand_ins[name]

    site, work = settings["site"], "/tmp/.paddock-pip"
    os.makedirs(site, exist_ok=True)
    os.makedirs(work, exist_ok=True)
    path = list(sys.path)
    sys.path[:] = [settings["pip"], site] + [p for p in path if p.startswith("/lib/")]
    importlib.invalidate_caches()
    report, wishes = work + "/report.json", work + "/requirements.txt"
    with open(wishes, "w") as f:
        f.write("\n".join(settings["requirements"]) + "\n")
    with contextlib.suppress(OSError):
        os.unlink(report)
    args = ["--isolated", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--no-color", "install",
            "--only-binary", ":all:", "--no-compile", "--no-warn-script-location", "--progress-bar", "off", "--prefix", settings["prefix"],
            "--root-user-action", "ignore", "--report", report, "-r", wishes]
    if settings["hashed"]:
        args.append("--require-hashes")
    if settings["upgrade"]:
        args += ["--upgrade", "--upgrade-strategy", "only-if-needed"]
    if settings["links"]:
        args += ["--no-index", "--find-links", settings["links"]]
    else:
        args += ["--index-url", settings["index"], "--trusted-host", settings["host"]]
    out = io.StringIO()
    environment, temporary = dict(os.environ), tempfile.tempdir
    try:
        tempfile.tempdir = work
        os.environ.update(PIP_CONFIG_FILE=os.devnull)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            from pip._internal.cli.main import main
            status = main(args)
    except BaseException as e:  # SystemExit, too
        status = e.code if isinstance(e, SystemExit) and isinstance(e.code, int) else 2
        out.write(f"ERROR: {type(e).__name__}: {e}\n")
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:], tempfile.tempdir = path, temporary
        for name in [n for n in sys.modules if n not in before and (n == "pip" or n.startswith("pip."))]:
            del sys.modules[name]
        for name, module in stand_ins.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        for owner, name in added:
            delattr(owner, name)
        if site not in sys.path:
            sys.path.append(site)
        importlib.invalidate_caches()
    installed = []
    with contextlib.suppress(OSError, ValueError):
        with open(report) as f:
            for one in json.load(f)["install"]:
                installed.append({"name": one["metadata"]["name"], "version": one["metadata"]["version"]})
    import shutil
    shutil.rmtree(work, ignore_errors=True)
    printed = out.getvalue()[-20000:]
    print("paddock-pip-report:" + json.dumps({"status": status, "installed": installed if status == 0 else [], "printed": printed}))


_paddock_install("{}")
del _paddock_install
