"""Reading a Kubernetes cluster: who may (`access`, `kubeconfig`), pods as they come and go (`pods`, `members`)."""
