"""``rightlung serve``: the reading room in the browser, and its accounts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.cli.options import Texts, arg, opt
from rightlung.cli.output import say
from rightlung.core import InputError
from rightlung.core.errors import OutputError

serve_app = typer.Typer(
    help="Look, ask and judge in the browser; without a command, start the service.", invoke_without_command=True
)
users_app = typer.Typer(help="Add, list and remove accounts.", no_args_is_help=True)
serve_app.add_typer(users_app, name="users")
StoreUrl = Annotated[
    str | None,
    opt("Store: sqlite:///FILE or postgresql://USER@HOST/DATABASE. Default: a SQLite file in ~/.local/share.", "URL"),
]


@serve_app.callback()
def serve(
    context: typer.Context,
    source: Annotated[str | None, opt("Address of the studies. Default: phantom?count=24&seed=7.", "SOURCE")] = None,
    models: Annotated[Texts, opt("Model (repeatable). Default: starter, chex.", "MODEL", name="--model")] = None,
    images: Annotated[
        list[Path] | None, opt("DICOM, PNG or JPEG file to open (repeatable).", "FILE", name="--image")
    ] = None,
    store: StoreUrl = None,
    host: Annotated[str, opt("Address to listen on; any but loopback needs accounts.", "HOST")] = "127.0.0.1",
    port: Annotated[int, opt("Port to listen on.", "PORT", min=0, max=65_535)] = 8800,
    accounts: Annotated[bool, opt("Ask for a login on loopback, too.", name="--accounts")] = False,
    names: Annotated[Texts, opt("Further host name of the service (repeatable).", "NAME", name="--name")] = None,
    measures: Annotated[
        list[Path] | None, opt("Audit to correlate answers of reader studies with (repeatable).", "DIR")
    ] = None,
    threads: Annotated[int, opt("CPU threads of the models.", "N", min=1)] = 1,
    waiting: Annotated[int, opt("Questions that may wait for the models.", "N", min=1)] = 24,
    tls: Annotated[bool, opt("Browsers come through TLS (a reverse proxy).", name="--tls")] = False,
) -> None:
    """Start the service; it runs until it is interrupted."""
    if context.invoked_subcommand is not None:
        return
    _needed()
    import uvicorn

    from rightlung.app.service import create_app
    from rightlung.app.settings import DEFAULT_MODELS, DEFAULT_SOURCE, ServeSettings

    settings = ServeSettings(
        source or DEFAULT_SOURCE, tuple(models or DEFAULT_MODELS), tuple(images or ()), store, host, port, accounts,
        tuple(names or ()), tuple(measures or ()), waiting, threads, tls,
    )  # fmt: skip
    app = create_app(settings)
    config = uvicorn.Config(
        app, host=host, port=port, access_log=False, log_level="warning", server_header=False, timeout_keep_alive=30,
        proxy_headers=False, limit_concurrency=1_000,
    )  # fmt: skip
    server = uvicorn.Server(config)
    sock = _listening(config, host, port)
    shown = f"[{host}]" if ":" in host else host
    say(f"rightlung: http://{shown}:{sock.getsockname()[1]}  (Ctrl+C stops it)")
    say(f"  studies: {settings.source}; models: {', '.join(settings.models)}")
    say(f"  store: {app.state.context.store.shown}; {'login required' if settings.login_required else 'no login'}")
    if settings.login_required:
        names = sorted(settings.host_names - {"[::1]"})
        say(f"  browsers reach it as {', '.join(names)} only; --name NAME adds a host name")
    say(NOT_A_MEDICAL_DEVICE)
    server.run(sockets=[sock])


def _listening(config: Any, host: str, port: int) -> Any:
    """Return a socket; an error says why there is none, instead of a log line."""
    import socket

    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        raise InputError(f"--host {host} --port {port}: {error.strerror or error}") from None
    return sock


@users_app.command("add")
def add(
    name: Annotated[str, arg("Name to log in with.", "NAME")],
    role: Annotated[str, opt("annotator or owner.", "ROLE")] = "annotator",
    store: StoreUrl = None,
    password_stdin: Annotated[bool, opt("Read the password from standard input.", name="--password-stdin")] = False,
) -> None:
    """Add an account; the password is asked for."""
    accounts = _accounts(store)
    if password_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    accounts.add(name, password, role)
    say(f"added {role} {name!r} to {accounts.store.shown}")


@users_app.command("list")
def list_users(store: StoreUrl = None) -> None:
    """List the accounts."""
    for user in _accounts(store).listed():
        print(f"{user['name']}\t{user['role']}\t{user['created']}")


@users_app.command("remove")
def remove(name: Annotated[str, arg("Name of the account.", "NAME")], store: StoreUrl = None) -> None:
    """Remove an account; its answers stay."""
    from rightlung.app.errors import AppError

    accounts = _accounts(store)
    try:
        accounts.remove(name)
    except AppError as error:
        raise InputError(error.message) from None
    say(f"removed {name!r}")


def _accounts(store: str | None) -> Any:
    _needed()
    from rightlung.app.accounts import Accounts
    from rightlung.app.settings import ServeSettings
    from rightlung.app.store import Store

    return Accounts(Store(ServeSettings(store=store).store_url), True)


def _needed() -> None:
    """Raise an error that says how to install what is missing."""
    try:
        import alembic  # noqa: F401
        import argon2  # noqa: F401
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise OutputError(f"rightlung serve needs {error.name}: pip install 'rightlung[serve]'") from None
