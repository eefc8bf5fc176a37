// Package nodeconfigs renders the NodeConfigs that match a node into one Content
// and names it in the node's NodeUpdate.
//
// Promise: NodeUpdate.spec.config names a Content that exists, is never changed
// and holds all that matches the node; with a conflict it stays what it was. It
// moves no node: it only says what would be wanted. Contents that a running
// update may still need are kept.
//
// Inputs: NodeConfigs, UpdatePools, Nodes, NodeUpdates, ConfigMaps of
// refit-nodes. Outputs: Contents of type config, NodeUpdate.spec.config,
// NodeConfig.status. Caller: the controller.
package nodeconfigs
