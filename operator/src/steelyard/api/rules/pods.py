"""Rules on what users may add to pods: variables, resources, labels, containers and volumes."""

from steelyard.api.engine import EnvSource, EnvVar
from steelyard.api.names import OWN_CONTAINERS, OWN_FOLDERS, OWN_VOLUMES
from steelyard.api.resources import Resources
from steelyard.api.roles import PodSpec, TemplateContainer, TemplateMetadata, Volume
from steelyard.api.rules.rule import Rule, decode, pod, spec

# The operator's folders as a pattern that also finds //etc//steelyard.
_FOLDERS = "|".join(folder.strip("/").replace("/", "/+") for folder in OWN_FOLDERS)

_ENVIRONMENT = (
    Rule(
        name="one-value-a-variable",
        on=EnvVar,
        cel="!(has(self.value) && has(self.valueFrom))",
        message="a variable has value or valueFrom, not both",
        accept=spec(engine={"env": [{"name": "A", "value": "1"}]}),
        reject=spec(engine={"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]}),
        field="valueFrom",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="one-source-a-variable",
        on=EnvSource,
        cel="[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1",
        message="valueFrom takes exactly one of secretKeyRef, configMapKeyRef and fieldRef",
        accept=spec(engine={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}),
        reject=spec(engine={"env": [{"name": "A", "valueFrom": {}}]}),
    ),
)

_TEMPLATE = (
    Rule(
        name="requests-within-limits",
        on=Resources,
        cel="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits)"
        " || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
        message="a request is greater than its limit; raise the limit or lower the request",
        accept=decode(resources={"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1}}),
        reject=decode(resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "1G"}}),
        field="requests",
    ),
    Rule(
        name="no-labels-of-ours",
        on=TemplateMetadata,
        cel="(!has(self.labels) || self.labels.all(k, !k.startsWith('serving.steelyard.dev/')"
        " && !k.startsWith('app.kubernetes.io/')))"
        " && (!has(self.annotations) || self.annotations.all(k, !k.startsWith('serving.steelyard.dev/')))",
        message="labels under serving.steelyard.dev/ and app.kubernetes.io/, and annotations under the former, are the"
        " operator's; use another prefix",
        accept=decode(template={"metadata": {"labels": {"team": "a"}, "annotations": {"app.kubernetes.io/x": "y"}}}),
        reject=decode(template={"metadata": {"labels": {"serving.steelyard.dev/role": "prefill"}}}),
        reason="FieldValueForbidden",
    ),
    Rule(
        name="engine-container-is-the-operators",
        on=TemplateContainer,
        cel="self.name != 'engine' || (!has(self.image) && (!has(self.command) || self.command.size() == 0)"
        " && (!has(self.args) || self.args.size() == 0) && !has(self.resources))",
        message="the container engine takes env and volumeMounts here; its image and args are spec.engine.image and"
        " spec.engine.args, its resources are the role's, its command is fixed",
        accept=pod(containers=[{"name": "engine", "env": [{"name": "A", "value": "1"}]}]),
        reject=pod(containers=[{"name": "engine", "command": ["/bin/sh", "-c"], "args": ["exec serve"]}]),
        reason="FieldValueForbidden",
    ),
    Rule(
        name="sidecar-has-an-image",
        on=TemplateContainer,
        cel="self.name == 'engine' || has(self.image)",
        message="a sidecar needs an image; to add to the engine's container name it engine",
        accept=pod(containers=[{"name": "logger", "image": "logger:1"}]),
        reject=pod(containers=[{"name": "logger"}]),
        reason="FieldValueRequired",
    ),
    Rule(
        name="container-names-not-ours",
        on=TemplateContainer,
        cel=f"!(self.name in {[*OWN_CONTAINERS]})",
        message=f"a container of the operator is named {', '.join(OWN_CONTAINERS)}; choose another name",
        accept=pod(containers=[{"name": "logger", "image": "logger:1"}]),
        reject=pod(containers=[{"name": "weights", "image": "logger:1"}]),
        field="name",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="engine-files-are-the-operators",
        on=TemplateContainer,
        cel="self.name != 'engine' || !has(self.volumeMounts) || self.volumeMounts.all(m, !m.mountPath.contains('..')"
        " && !m.mountPath.matches('/[.](/|$)')"
        f" && !m.mountPath.matches('^/+(({_FOLDERS})(/|$)|(etc/*)?$)'))",
        message=f"volumes of the engine cannot be mounted at or over {', '.join(OWN_FOLDERS)}, which hold weights and"
        " settings; mount them elsewhere",
        accept=pod(
            volumes=[{"name": "data", "emptyDir": {}}],
            containers=[{"name": "engine", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        ),
        reject=pod(
            volumes=[{"name": "data", "emptyDir": {}}],
            containers=[{"name": "engine", "volumeMounts": [{"name": "data", "mountPath": "/etc/steelyard"}]}],
        ),
        field="volumeMounts",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="one-source-a-volume",
        on=Volume,
        cel="[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim)]"
        ".filter(x, x).size() == 1",
        message="a volume has exactly one of configMap, secret, emptyDir and persistentVolumeClaim",
        accept=pod(volumes=[{"name": "data", "emptyDir": {}}]),
        reject=pod(volumes=[{"name": "data", "emptyDir": {}, "secret": {"secretName": "a"}}]),
    ),
    Rule(
        name="volume-names-not-ours",
        on=Volume,
        cel=f"!(self.name in {[*OWN_VOLUMES]})",
        message=f"volumes of the operator are named {', '.join(OWN_VOLUMES)}; choose another name",
        accept=pod(volumes=[{"name": "data", "emptyDir": {}}]),
        reject=pod(volumes=[{"name": "models", "emptyDir": {}}]),
        field="name",
        reason="FieldValueForbidden",
    ),
    Rule(
        name="mounts-have-volumes",
        on=PodSpec,
        cel="!has(self.containers) || self.containers.all(c, !has(c.volumeMounts) || c.volumeMounts.all(m,"
        " has(self.volumes) && self.volumes.exists(v, v.name == m.name)))",
        message="a volumeMount names a volume that the template does not have; add it to template.spec.volumes",
        accept=pod(
            volumes=[{"name": "data", "emptyDir": {}}],
            containers=[{"name": "engine", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        ),
        reject=pod(containers=[{"name": "engine", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]),
        field="containers",
    ),
)

POD_RULES = (*_ENVIRONMENT, *_TEMPLATE)
