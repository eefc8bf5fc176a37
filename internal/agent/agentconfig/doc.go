// Package agentconfig reads the agent's configuration from its file, flags and environment,
// with the defaults of a kubeadm node. Inputs: a YAML file, the kubelet's
// kubeconfig. Output: Config. Callers: the agent, its service and installer,
// cmd/refit-agent.
package agentconfig
