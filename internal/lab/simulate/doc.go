// Package simulate runs a full update of many nodes: a real etcd and API server,
// the real controller in a process of its own, and nodes that are simulated.
//
// Promise: all communication of controller and nodes goes through the real API, with the
// access rules and admission policies of an installation. Every write of a node uses
// that node's identity. The API server counts. The result names the simulated parts: a
// node has no disk, no pods and no heartbeat, pins at once, and its steps only take time.
//
// Input: Options. Output: Result, whose Problems name the limits that were
// missed. Callers: `refit-lab simulate`, the tests and bench/.
package simulate
