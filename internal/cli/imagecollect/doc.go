// Package imagecollect gathers what `refit tags check` and `refit tags lint` want to
// know of a cluster: its objects, live or from a dump, and what registries answer.
//
// Promise: it reads only. What may not be read is told on standard error and left
// out; what nobody answers stays unknown. Inputs: an API server or a file,
// registries. Outputs: read.Objects. Callers: internal/cli/tagscmd.
package imagecollect
