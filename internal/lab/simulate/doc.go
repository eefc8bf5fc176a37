// Package simulate runs a full update of many nodes: a real etcd and API server,
// the real controller in a process of its own, and nodes that are simulated.
//
// Promise: every byte that the controller and the nodes say to each other goes
// through the real API, with the access rules and admission policies of an
// installation; every write of a node is made as that node. What was counted is
// counted by the API server. What is simulated is named in the result: a node has
// no disk, no pods and no heartbeat, it holds and pins at once, and its steps
// only take time.
//
// Input: Options. Output: Result, whose Problems name the limits that were
// missed. Callers: `refit-lab simulate`, the tests and bench/.
package simulate
