// Package imagecollect gathers the facts of a cluster for `refit tags check` and
// `refit tags lint`: its objects, live or from a dump, and the answers of registries.
//
// Promise: it only reads. It reports forbidden objects on standard error and skips
// them; tags of unreachable registries stay unknown. Inputs: an API server or a file,
// registries. Outputs: read.Objects. Callers: internal/cli/tagscmd.
package imagecollect
