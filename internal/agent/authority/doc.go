// Package authority verifies on the node what administrators decided.
//
// Promise: what the controller tells a node is obeyed only if an object that the
// controller cannot write stands behind it. A bundle is loaded if a Bundle object
// approves its digest, or if enough trusted keys signed it; a run starts only for
// a ClusterUpdate, or an ImageTrack, whose spec asks for it, and only with the
// steps of the plan whose digest was approved; files, units and settings come from
// such a plan, or from NodeConfigs. A track's run may in addition name by its digest the
// image that a container of this node runs: those bytes need no approval. Admission policies and RBAC keep the controller
// from writing these objects (config/admission, config/rbac).
//
// Inputs: Bundles, TrustPolicies, ClusterUpdates, ImageTracks, NodeConfigs with their
// ConfigMaps, UpdatePools, OSImages and plans, read from the API server with the
// node's identity; the digests that a container runs, from the caller. Outputs: a Snapshot, kept on disk for starts without an API server;
// verdicts over runs and configurations. Caller: the agent's wiring.
package authority
