// Command refit-render renders a chart or a kustomization for refit, which runs it: the engines
// of templates are as large as half of refit, and few commands need them.
//
// Promise: it renders as `helm template` and `kustomize build` do, without a cluster, and
// connects to nothing. It reads the chart or the kustomization, and the files of values that it
// is given. An entry of a kustomization that is not a local path, a plugin and a chart in it are
// refused.
//
// Inputs: arguments; the archive of a chart may be standard input. Output: a tar archive of the
// manifests on standard output. For a chart it begins with a directory of the chart's name, and the
// name of a manifest is the path of its template. Exit codes are those of refit: 2 for what cannot
// be rendered, with the reason on standard error.
package main
