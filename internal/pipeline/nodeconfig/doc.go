// Package nodeconfig decides what a node's own configuration is: the NodeConfigs
// that match it, merged into one value that is named by its hash.
//
// Promise: pure. The same sources, in whatever order, give the same value. Two
// sources that want the same thing are a verdict that names both; a path or unit
// that belongs to somebody else is a verdict that says whose it is; all verdicts
// are returned. With a verdict there is no configuration.
//
// Input: Source, one per NodeConfig. Output: model.NodeConfig. Callers: the
// controller's part nodeconfig. Example:
//
//	c, verdicts := configure.Merge([]configure.Source{{Name: "edge", Files: files}})
package nodeconfig
