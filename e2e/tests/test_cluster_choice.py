"""Which backend is chosen, and what a cluster may be called."""

import pytest

from e2e.cluster import ClusterError, paths
from e2e.cluster.choose import Backend, Choice, Facts, choose


def facts(
    *, context: str | None = None, docker: bool = False, kind: bool = False, root: bool = False, person: bool = False
) -> Facts:
    return Facts(context, docker, kind, root, person)


EVERYTHING = facts(context="work", docker=True, kind=True, root=True, person=True)


@pytest.mark.parametrize(
    ("wanted", "given", "then", "because"),
    [
        (Backend.AUTO, EVERYTHING, Choice(Backend.CONTEXT, ask=True), "a person can say no"),
        (
            Backend.AUTO,
            facts(context="work", docker=True, kind=True, root=True),
            Choice(Backend.KIND),
            "nobody can be asked, so a cluster of others is left alone",
        ),
        (Backend.AUTO, facts(docker=True, kind=True, root=True), Choice(Backend.KIND), "Docker comes before root"),
        (Backend.AUTO, facts(docker=True, root=True), Choice(Backend.LOCAL), "Docker without kind makes no cluster"),
        (Backend.AUTO, facts(kind=True, root=True), Choice(Backend.LOCAL), "kind without Docker makes no cluster"),
        (Backend.AUTO, facts(root=True, person=True), Choice(Backend.LOCAL), "root is enough"),
        (Backend.CONTEXT, facts(context="work"), Choice(Backend.CONTEXT), "asked for by name"),
        (Backend.CONTEXT, EVERYTHING, Choice(Backend.CONTEXT, ask=True), "a person should see which context it is"),
        (Backend.KIND, EVERYTHING, Choice(Backend.KIND), "asked for by name"),
        (Backend.LOCAL, EVERYTHING, Choice(Backend.LOCAL), "asked for by name"),
    ],
)
def test_the_backend_follows_the_wish_and_the_facts(wanted: Backend, given: Facts, then: Choice, because: str) -> None:
    assert choose(wanted, given) == then, because


def test_a_refused_context_leads_to_the_next_best() -> None:
    assert choose(Backend.AUTO, EVERYTHING, refused_context=True) == Choice(Backend.KIND)


@pytest.mark.parametrize(
    ("wanted", "given", "remedy"),
    [
        (Backend.AUTO, facts(), "run as root"),
        (Backend.AUTO, facts(context="work"), "--backend context"),
        (Backend.CONTEXT, facts(root=True), "kubectl get nodes"),
        (Backend.KIND, facts(docker=True, root=True), "kind"),
        (Backend.KIND, facts(kind=True, root=True), "Docker"),
        (Backend.LOCAL, facts(docker=True, kind=True), "root"),
    ],
)
def test_what_cannot_be_had_is_refused_with_a_remedy(wanted: Backend, given: Facts, remedy: str) -> None:
    with pytest.raises(ClusterError, match=remedy):
        choose(wanted, given)


@pytest.mark.parametrize("name", ["steelyard", "a", "test-2", "x" * 30])
def test_names_that_fit(name: str) -> None:
    assert paths.check_name(name) == name


@pytest.mark.parametrize("name", ["", "Test", "2test", "test-", "a/b", "..", "a b", "x" * 31, "a\n"])
def test_names_that_would_break_paths_are_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="--name"):
        paths.check_name(name)
