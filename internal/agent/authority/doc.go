// Package authority verifies on the node what administrators decided.
//
// Promise: a node follows the controller only if an object that the controller cannot write
// supports it. A bundle needs a Bundle object that approves its digest, or signatures of
// enough trusted keys. Rules about signatures of images come from TrustPolicies alone. A run
// needs a ClusterUpdate or an ImageTrack whose spec asks for it,
// and only has the steps of the plan whose digest was approved. Files, units and settings
// come from such a plan, or from NodeConfigs. In addition, a track's run may name by its
// digest the image that a container of this node runs: those bytes need no approval.
// Admission policies and RBAC keep the controller from writing these objects
// (config/admission, config/rbac).
//
// Inputs: Bundles, TrustPolicies, ClusterUpdates, ImageTracks, NodeConfigs with their
// ConfigMaps, UpdatePools, OSImages and plans, read from the API server with the node's
// identity; the digests that a container runs, from the caller. Outputs: a Snapshot, stored
// on disk for starts without an API server; verdicts over runs and configurations. Caller:
// the agent's wiring.
package authority
