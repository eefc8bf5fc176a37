package inputs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/oci"
)

const (
	// chartLayer is the media type of a chart in a registry.
	chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	// maxChart and maxIndex bound downloads in bytes.
	maxChart, maxIndex = 16 << 20, 64 << 20
	// fetchTimeout bounds one download.
	fetchTimeout = 5 * time.Minute
	maxRedirects = 10
)

// fetchChart downloads the archive of a chart.
func fetchChart(ctx context.Context, scheme, ref string) ([]byte, error) {
	switch scheme {
	case "oci":
		return fetchChartImage(ctx, strings.TrimPrefix(ref, "oci://"))
	case "http", "https":
		return fetchChartFile(ctx, ref)
	}
	return nil, console.UsageErrorf("%s:// is not supported. Use oci://HOST/PATH:VERSION or https://HOST/PATH/NAME:VERSION, or download the chart", scheme)
}

// fetchChartImage downloads a chart from a registry, with the credentials for images.
func fetchChartImage(ctx context.Context, ref string) ([]byte, error) {
	registries, err := oci.NewRegistries()
	if err != nil {
		return nil, err
	}
	root, err := registries.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	data, err := oci.Fetch(ctx, root.Store, root.Desc)
	if err != nil {
		return nil, err
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", root.Desc.Digest, err)
	}
	for _, l := range m.Layers {
		if l.MediaType == chartLayer {
			return oci.Fetch(ctx, root.Store, l)
		}
	}
	return nil, console.UsageErrorf("it is not a chart: no layer has the media type %s. Name an image with docker://%s", chartLayer, ref)
}

// chartIndex is the index of a repository of charts.
type chartIndex struct {
	Entries map[string][]struct {
		Version string   `json:"version"`
		URLs    []string `json:"urls"`
		Digest  string   `json:"digest"`
	} `json:"entries"`
}

// fetchChartFile downloads an archive: the one of a URL, or the one that the index of a
// repository names for NAME:VERSION.
func fetchChartFile(ctx context.Context, ref string) ([]byte, error) {
	u, err := url.Parse(ref)
	if err != nil {
		return nil, console.UsageError(err)
	}
	if strings.HasSuffix(u.Path, ".tgz") {
		return download(ctx, u, maxChart)
	}
	name, version, ok := strings.Cut(path.Base(u.Path), ":")
	if !ok || version == "" {
		return nil, console.UsageErrorf("the version is missing: write https://HOST/PATH/NAME:VERSION, or the URL of a .tgz")
	}
	at := *u
	at.RawPath, at.Path = "", path.Join("/", path.Dir(u.Path), "index.yaml")
	data, err := download(ctx, &at, maxIndex)
	if err != nil {
		return nil, err
	}
	var index chartIndex
	if err := yaml.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", at.Redacted(), err)
	}
	for _, e := range index.Entries[name] {
		if strings.TrimPrefix(e.Version, "v") == strings.TrimPrefix(version, "v") && len(e.URLs) > 0 {
			return fetchIndexed(ctx, &at, e.URLs[0], e.Digest)
		}
	}
	return nil, console.UsageErrorf("%s has no version %s of chart %s", at.Redacted(), version, name)
}

// fetchIndexed downloads the archive that an index names, and compares the digest if it has one.
func fetchIndexed(ctx context.Context, index *url.URL, ref, digest string) ([]byte, error) {
	file, err := index.Parse(ref)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", index.Redacted(), err)
	}
	data, err := download(ctx, file, maxChart)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); digest != "" && !strings.EqualFold(strings.TrimPrefix(digest, "sha256:"), got) {
		return nil, console.WithExit(console.ExitVerification, fmt.Errorf("%s has SHA-256 %s, but %s has %s. Report it to the owner of the repository", file.Redacted(), got, index.Redacted(), digest))
	}
	return data, nil
}

// download reads a URL over https, or from this computer.
func download(ctx context.Context, u *url.URL, most int64) ([]byte, error) {
	if !isProtected(u) {
		return nil, console.UsageErrorf("%s is not https: anyone on the way could change the chart. Use https, or download it", u.Redacted())
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "refit")
	client := &http.Client{CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if !isProtected(r.URL) || len(via) > maxRedirects {
			return fmt.Errorf("redirected to %s, which is not https or one redirect too many", r.URL.Redacted())
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: the server answers %s", u.Redacted(), resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than the %d bytes allowed", most)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	return data, nil
}

// isProtected reports whether an answer reaches refit as the server sent it.
func isProtected(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}
