"""A real Prometheus on a cluster, built from its Go module, scraping engines, gateways and the operator every five seconds.

`python -m e2e.monitoring --name CLUSTER` installs it in the namespace `monitoring` and tells the operator of it.
"""

from e2e.monitoring.install import (
    NAMESPACE,
    URL,
    ask,
    connect_operator,
    disconnect_operator,
    install,
    restart,
    stop,
    value,
)

__all__ = ["NAMESPACE", "URL", "ask", "connect_operator", "disconnect_operator", "install", "restart", "stop", "value"]
