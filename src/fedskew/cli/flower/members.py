"""Who takes part. At the server ``fedskew flower admit | revoke``, at hospitals ``join |
approve``.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedskew.cli.flower.group import HOME, AsJson, Home, app, say, say_json
from fedskew.deploy import approval, hospital, membership
from fedskew.errors import RecipeError


@app.command()
def join(
    name: Annotated[str, typer.Argument(help="A name for this node; its files are called so.")],
    superlink: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to, once admitted: the node is started."),
    ] = None,
    client: Annotated[
        int | None, typer.Option(min=0, help="The number it was admitted with.")
    ] = None,
    root_certificates: Annotated[Path, typer.Option(help="The server's certificate.")] = Path(
        "ca.crt"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its own port; 0 = a free one.")] = 0,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where its files lie.")] = Path("."),
) -> None:
    """At a hospital: make a key and a policy; once admitted, run the node.

    The private key never leaves this machine. Without --superlink the files are made and the public
    key is shown.
    """
    papers = hospital.prepare(folder, name)
    if superlink is None:
        say(f"{papers.policy} says what this node gives away: read it, change it")
        say(f"{papers.public} goes to whoever runs the server, for: fedskew flower admit")
        say(papers.public.read_text().strip())
        return
    if client is None:
        raise RecipeError(
            "--client", "is missing", "Give the number that fedskew flower admit told"
        )
    policy = hospital.check(papers, superlink, root_certificates)
    say(f"client {client} of {superlink}; {hospital.describe(policy)}")
    home = folder / f"{name}.flwr"
    if policy.apps is None:
        command = hospital.node_command(papers, superlink, root_certificates, client, port)
        hospital.become(command, home)
    code = hospital.run_behind_gate(papers, superlink, root_certificates, client, port, home)
    raise typer.Exit(code)


@app.command()
def approve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The app, as it was sent to you.")],
    name: Annotated[str, typer.Argument(help="The node: NAME of fedskew flower join NAME.")],
) -> None:
    """At a hospital: let an app run on this node, after you have read it."""
    found, apps = approval.approve(Path(f"{name}.toml"), folder)
    say(f"{found} is on the list {apps}")


@app.command()
def admit(
    public_key: Annotated[
        Path, typer.Argument(metavar="KEY.pub", help="What fedskew flower join has made.")
    ],
    client: Annotated[
        int | None, typer.Option(min=0, help="Its client number (default: the lowest free one).")
    ] = None,
    home: Home = HOME,
) -> None:
    """At the server: let a node of another machine take part, as one client and no other."""
    found = membership.admit(home, public_key, client)
    member = found.member
    say(f"{member.name} is client {member.client} ({member.key})")
    say(
        f"send it {found.authority}; in the folder of its key, with that file beside it, it starts:"
    )
    say(shlex.join(found.command))


@app.command()
def revoke(
    who: Annotated[
        str, typer.Argument(metavar="NAME", help="Its name, client number or key (SHA256:...).")
    ],
    home: Home = HOME,
    as_json: AsJson = False,
) -> None:
    """At the server: a member takes no part any more, from this moment on and for ever.

    Its hospital may make another key, which can be admitted with the same client number.
    """
    member = membership.revoke(home, who)
    if as_json:
        return say_json({"client": member.client, "name": member.name, "key": member.key})
    say(f"{member.name} is client {member.client} no more ({member.key})")
    say(f"a new key may be: fedskew flower admit KEY.pub --client {member.client}")
