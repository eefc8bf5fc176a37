// Package clusterfacts reads the facts for the gate, the drain and the rollout from a
// cluster. They are pods with their budgets, webhooks with their backends, deprecated APIs in
// use, image pull settings, the static pods of kubeadm, and the downtime of the API server.
//
// Promise: it only reads. A failed read is an error that names the request, never an empty
// result. The state of the static pods is read from the API server, never from a cache. The
// downtime meter probes once a second, each time on a new connection, so a connection that
// died with the old API server does not count. It measures from where the controller runs, and
// only while nodes move. A measurement that was not written to a status is lost with the
// process.
//
// Input: a client that reads, the configuration of the API server. Output: values of packages
// gate and drain, pods, reasons to wait, Downtime. Callers: controller/clusterupdates,
// controller/nodedrain, controller/imagetracks, `refit explain node/NAME`.
package clusterfacts
