// Package nodeconfig decides what a node's own configuration is: the NodeConfigs
// that match it, merged into one value that is named by its hash.
//
// Promise: pure. The same sources, in any order, give the same value. Two sources that
// want the same thing are a blocker that names both. A path or unit that belongs to
// another component is a blocker that names its owner. All blockers are returned. With a
// blocker there is no configuration.
//
// Input: Source, one per NodeConfig. Output: model.NodeConfig. Callers: the
// controller's part nodeconfig. Example:
//
//	c, blockers := configure.Merge([]configure.Source{{Name: "edge", Files: files}})
package nodeconfig
