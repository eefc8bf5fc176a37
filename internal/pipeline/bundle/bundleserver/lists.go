package bundleserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

func (s *Server) listCatalog(w http.ResponseWriter, r *http.Request) *httpError {
	page, err := paginate(w, r, s.catalog)
	if err != nil {
		return err
	}
	return writeJSON(w, r, "application/json", map[string][]string{"repositories": page})
}

func (s *Server) listTags(w http.ResponseWriter, r *http.Request, repo *repository, _ string) *httpError {
	page, err := paginate(w, r, repo.tags)
	if err != nil {
		return err
	}
	return writeJSON(w, r, "application/json", struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}{repo.name, page})
}

// paginate returns the part of a sorted list that the query asks for, and links to the next one.
func paginate(w http.ResponseWriter, r *http.Request, list []string) ([]string, *httpError) {
	q := r.URL.Query()
	if last := q.Get("last"); last != "" {
		i, found := slices.BinarySearch(list, last)
		if found {
			i++
		}
		list = list[i:]
	}
	if !q.Has("n") {
		return append([]string{}, list...), nil
	}
	n, err := strconv.Atoi(q.Get("n"))
	if err != nil || n < 0 {
		return nil, fail(http.StatusBadRequest, codeUnsupported, "n=%.40q is no number of entries", q.Get("n"))
	}
	if n > 0 && n < len(list) {
		next := url.Values{"n": {strconv.Itoa(n)}, "last": {list[n-1]}}
		if ns := q.Get("ns"); ns != "" {
			next.Set("ns", ns)
		}
		w.Header().Set("Link", fmt.Sprintf(`<%s?%s>; rel="next"`, r.URL.EscapedPath(), next.Encode()))
	}
	return append([]string{}, list[:min(n, len(list))]...), nil
}

func (s *Server) listReferrers(w http.ResponseWriter, r *http.Request, repo *repository, digest string) *httpError {
	if err := checkDigest(digest); err != nil {
		return err
	}
	only := r.URL.Query().Get("artifactType")
	if only != "" {
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
	list := []json.RawMessage{}
	for _, ref := range repo.referrers[digest] {
		if only == "" || ref.artifactType == only {
			list = append(list, ref.descriptor)
		}
	}
	return writeJSON(w, r, bundle.MediaTypeIndex, struct {
		SchemaVersion int               `json:"schemaVersion"`
		MediaType     string            `json:"mediaType"`
		Manifests     []json.RawMessage `json:"manifests"`
	}{2, bundle.MediaTypeIndex, list})
}
