"""The `local` backend: a real Kubernetes on this machine, without Docker, in private namespaces without an uplink.

A *machine* is one waiting process that is pid 1 of its own pid, network, mount, uts and ipc namespaces. `cp` runs etcd,
the API server, the controller manager, the scheduler and DNS; `node1`, `node2`, … run containerd, the kubelet, kube-proxy
and the NetworkPolicy firewall. Killing the pid 1s ends everything in them: the kernel drops processes, mounts and
interfaces, and only cgroup folders and the state folder are left to remove.
"""
