"""`moldau completion`: the script a shell sources to complete commands, options and topic names."""

from __future__ import annotations

import click

WHERE = {
    "bash": 'eval "$(moldau completion bash)"          # in ~/.bashrc',
    "zsh": 'eval "$(moldau completion zsh)"           # in ~/.zshrc',
    "fish": "moldau completion fish > ~/.config/fish/completions/moldau.fish",
}


@click.command(epilog="\b\nTo use it:\n  " + "\n  ".join(WHERE.values()))
@click.argument("shell", type=click.Choice(list(WHERE)))
def completion(shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    from moldau.cli.app import cli

    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no completion for {shell}"
    print(kind(cli, {}, "moldau", "_MOLDAU_COMPLETE").source())
