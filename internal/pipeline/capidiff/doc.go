// Package capidiff reads the objects that Cluster API shows an in-place update
// extension as fields, and turns claims on fields back into patches.
//
// Promise: pure. Two versions of an object give the same differences for any order of
// their keys. A path names a field and contains no value. The value is a digest unless it
// is a Kubernetes version, because these objects carry secrets. Moving every difference
// gives exactly the desired object, moving none gives the current one, and a patch moves
// only claimed fields.
//
// Inputs: decoded JSON, current and desired. Outputs: differences, the object
// after a claim, an RFC 6902 patch. Caller: internal/controller/clusterapi, which
// lets the planner of internal/pipeline/updateplan share the differences out.
//
//	d := inplace.Differences(o)                    // machine/spec/version: v1.35.4 -> v1.36.3
//	after := inplace.Move(o, map[string]bool{"machine/spec/version": true})
//	patch, changed := inplace.Patch(o.Current, after)
package capidiff
