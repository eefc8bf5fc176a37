package bundleserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Error codes of the distribution specification. codeUnknown is that of its reference
// implementation for errors of the server.
const (
	codeBlobUnknown     = "BLOB_UNKNOWN"
	codeUploadUnknown   = "BLOB_UPLOAD_UNKNOWN"
	codeDigestInvalid   = "DIGEST_INVALID"
	codeManifestUnknown = "MANIFEST_UNKNOWN"
	codeNameInvalid     = "NAME_INVALID"
	codeNameUnknown     = "NAME_UNKNOWN"
	codeUnsupported     = "UNSUPPORTED"
	codeTooMany         = "TOOMANYREQUESTS"
	codeUnknown         = "UNKNOWN"
)

// httpError is the answer to a request that fails.
type httpError struct {
	status  int
	code    string
	message string
}

func (e *httpError) Error() string { return e.message }

func fail(status int, code, format string, args ...any) *httpError {
	return &httpError{status, code, fmt.Sprintf(format, args...)}
}

// write sends the error as the specification wants it.
func (e *httpError) write(w http.ResponseWriter) {
	body, err := json.Marshal(map[string]any{"errors": []any{map[string]string{"code": e.code, "message": e.message}}})
	if err != nil {
		body = []byte(`{"errors":[]}`)
	}
	h := w.Header()
	h.Del("Docker-Content-Digest")
	h.Del("ETag")
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(e.status)
	_, _ = w.Write(body) // the client is gone if it fails
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if err := s.route(w, r); err != nil {
		err.write(w)
	}
}

// route serves a request. It compares the path with names it knows and opens no file by it.
func (s *Server) route(w http.ResponseWriter, r *http.Request) *httpError {
	path := r.URL.Path
	rest, ok := strings.CutPrefix(path, "/v2/")
	if path == "/v2" {
		rest, ok = "", true
	}
	switch {
	case !ok:
		return fail(http.StatusNotFound, codeUnsupported, "this is a registry: its paths begin with /v2/")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		return fail(http.StatusMethodNotAllowed, codeUnsupported, "a bundle is read-only: this registry takes no pushes and deletes nothing")
	case rest == "":
		return writeJSON(w, r, "application/json", struct{}{})
	case rest == "_catalog":
		return s.listCatalog(w, r)
	}
	return s.routeRepository(w, r, rest)
}

// maxPath bounds what is compared with names.
const maxPath = 1024

// endpoints below a repository, by the last but one part of the path.
var endpoints = map[string]func(*Server, http.ResponseWriter, *http.Request, *repository, string) *httpError{
	"manifests": (*Server).getManifest, "blobs": (*Server).getBlob, "tags": (*Server).listTags, "referrers": (*Server).listReferrers,
}

func (s *Server) routeRepository(w http.ResponseWriter, r *http.Request, path string) *httpError {
	parts := strings.Split(path, "/")
	if len(path) > maxPath || len(parts) < 3 {
		return fail(http.StatusNotFound, codeUnsupported, "the specification has no such path")
	}
	kind, ref := parts[len(parts)-2], parts[len(parts)-1]
	name := strings.Join(parts[:len(parts)-2], "/")
	if kind == "uploads" {
		return fail(http.StatusNotFound, codeUploadUnknown, "a bundle is read-only: there are no uploads")
	}
	serve := endpoints[kind]
	if serve == nil || kind == "tags" && ref != "list" {
		return fail(http.StatusNotFound, codeUnsupported, "the specification has no such path")
	}
	repo := s.resolve(name, r.URL.Query().Get("ns"))
	switch {
	case repo != nil:
		return serve(s, w, r, repo, ref)
	case !nameForm.MatchString(name):
		return fail(http.StatusBadRequest, codeNameInvalid, "%.200q is no name of a repository", name)
	case kind == "referrers": // by the specification, a registry with this endpoint answers without a 404
		return serve(s, w, r, &repository{}, ref)
	}
	return fail(http.StatusNotFound, codeNameUnknown, "the bundle has no image %.200s", name)
}

// resolve finds the repository of a name in a path. ns is the registry that a client was asked
// for, if it uses this one as mirror. An image of another registry is not served in its place.
func (s *Server) resolve(name, ns string) *repository {
	if ns != "" {
		if r := s.repos[ns+"/"+name]; r != nil {
			return r
		}
		if r := s.exact(name); r != nil && strings.HasPrefix(r.name, ns+"/") {
			return r
		}
		return nil
	}
	if r := s.exact(name); r != nil {
		return r
	}
	return s.repos["docker.io/"+name] // Docker asks its mirrors so, for images of Docker Hub only
}

func (s *Server) exact(name string) *repository {
	if r := s.repos[name]; r != nil {
		return r
	}
	return s.repos[s.aliases[name]]
}

// digestForm are digests of any algorithm.
var digestForm = regexp.MustCompile(`^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$`)

// checkDigest refuses what can be no digest.
func checkDigest(d string) *httpError {
	if strings.HasPrefix(d, "sha256:") && !bundle.ValidDigest(d) || !digestForm.MatchString(d) {
		return fail(http.StatusBadRequest, codeDigestInvalid, "%.200q is no digest", d)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, r *http.Request, mediaType string, v any) *httpError {
	body, err := json.Marshal(v)
	if err != nil {
		return fail(http.StatusInternalServerError, codeUnknown, "%v", err)
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // the client is gone if it fails
	}
	return nil
}
