// Package ignitionimport reads the node configuration that others wrote: Ignition of
// version 3 in JSON, MachineConfig in YAML or JSON.
//
// Promise: pure. Nothing is lost in silence: every key is either carried over or
// named in Left with the reason. Secrets are not carried over, because every node
// reads a configuration, and are not repeated. What is fetched from elsewhere is
// not fetched.
//
// Input: bytes. Outputs: files, units, kernel arguments, ssh keys, packages, and
// what was left. Callers: the command refit config import. Example:
//
//	c, err := ignition.Import(data)
package ignitionimport
