"""Rendering a chat into a prompt with the model's own template, in a sandbox: templates come with weights, not with us."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def render(template: str, messages: Sequence[Mapping[str, str]], special: Mapping[str, str]) -> str:
    """Return the prompt for `messages`, ending where the assistant's answer starts.

    Raise ValueError with the template's own words where it refuses the messages, as many do for unusual role orders.
    """
    try:
        return _compile(template).render(messages=messages, add_generation_prompt=True, **special)
    except TemplateError as error:
        raise ValueError(f"the model's chat template refused the messages: {error}") from error


@lru_cache(maxsize=4)
def _compile(template: str) -> Template:
    """Compile with the settings and functions that templates of Hugging Face models expect."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)


def _refuse(message: str) -> None:
    raise TemplateError(message)
