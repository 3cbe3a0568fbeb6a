"""Tell the gateways of one service how many sequences a decode replica may hold, and have them read it at once."""

from collections.abc import Iterable
from contextlib import suppress

from steelyard.api import names
from steelyard.api.labels import ADMISSION, SCALER_MANAGER
from steelyard.decide import slots
from steelyard.observe.client import Api, Conflict, Missing
from steelyard.observe.replicas import Gateway
from steelyard.observe.resources import BY_KIND, POD


def admit(api: Api, namespace: str, service: str, uid: str, number: int) -> bool:
    """Write the number into the ConfigMap of that uid; gives whether it was still there."""
    content = {"data": {slots.FILE: slots.text(number)}}
    try:
        api.merge(BY_KIND["ConfigMap"], namespace, names.gateway_settings(service), uid, content, SCALER_MANAGER)
    except (Missing, Conflict):
        return False
    return True


def remind(api: Api, namespace: str, gateways: Iterable[Gateway], number: int) -> None:
    """Have the gateways' kubelets look at the ConfigMap, once the number is in it for everybody to see.

    A kubelet looks once a minute or so, and whenever something about a pod changes: hence an annotation on each gateway that
    does not have it yet. One that is gone by now needs none.
    """
    for gateway in gateways:
        if gateway.admission == str(number):
            continue
        told = {"metadata": {"annotations": {ADMISSION: str(number)}}}
        with suppress(Missing, Conflict):
            api.merge(POD, namespace, gateway.name, gateway.uid, told, SCALER_MANAGER)
