package inputs

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/cli/console"
)

// Names in a support archive.
const (
	// SupportHeader is the file that describes the archive.
	SupportHeader = "support.json"
	// SupportObjects is the directory with one file for each kind.
	SupportObjects = "objects"
	// SupportLogs is the directory with the logs.
	SupportLogs = "logs"
	// SupportJournals is the directory with the journals of the agents, one file for each node.
	SupportJournals = "journals"
)

const (
	// maxSupport bounds an archive in bytes: unpacked, and one file of it.
	maxSupport, maxSupportFile = 1 << 30, 256 << 20
)

// Support describes a support archive.
type Support struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// CreatedAt is when the cluster was read.
	CreatedAt time.Time `json:"createdAt"`
	// Refit is the version of the command that made the archive.
	Refit string `json:"refit"`
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Cluster is the uid of the namespace kube-system.
	Cluster string `json:"cluster,omitempty"`
	// Objects is the number of objects of each kind that were read.
	Objects map[string]int `json:"objects"`
	// Hidden is how many texts in objects and logs looked like a secret and were replaced.
	Hidden int `json:"hidden"`
	// LeftOut is what the archive should have and does not have.
	LeftOut []SupportGap `json:"leftOut,omitempty"`

	reader client.Reader
}

// SupportGap is something that could not be read, or was too large.
type SupportGap struct {
	// What is missing: a kind, a log, or a file of the archive.
	What string `json:"what"`
	// Why it is missing.
	Why string `json:"why"`
}

// SupportList are the objects of one kind in an archive: a list of that kind. One without
// objects differs from a kind that is not installed, which has no list.
type SupportList struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

// OpenSupport reads an archive of refit support.
func OpenSupport(file string) (*Support, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, console.UsageError(err)
	}
	defer f.Close()
	s, err := readSupport(f)
	if err != nil {
		return nil, console.WithExit(console.ExitVerification, fmt.Errorf("%s is not a whole support archive: %w. Ask for it again; refit support makes it", file, err))
	}
	return s, nil
}

func readSupport(from io.Reader) (*Support, error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return nil, err
	}
	var s Support
	r := &supportReader{kinds: scheme(), objects: map[schema.GroupKind][]client.Object{}, gaps: map[string]string{}}
	for t := tar.NewReader(io.LimitReader(z, maxSupport)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := r.readFile(h, t, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	if s.Kind != "Support" || s.CreatedAt.IsZero() {
		return nil, fmt.Errorf("it has no %s", SupportHeader)
	}
	for _, l := range s.LeftOut {
		r.gaps[l.What] = l.Why
	}
	s.reader, r.cluster = r, s.Cluster
	return &s, nil
}

// readFile reads the header and the objects; logs are for people.
func (c *supportReader) readFile(h *tar.Header, t io.Reader, s *Support) error {
	if h.Name != SupportHeader && path.Dir(h.Name) != SupportObjects {
		return nil
	}
	if h.Size > maxSupportFile {
		return fmt.Errorf("it has %d bytes, %d are allowed", h.Size, maxSupportFile)
	}
	data, err := io.ReadAll(t)
	if err != nil {
		return err
	}
	if h.Name == SupportHeader {
		return json.Unmarshal(data, s)
	}
	return c.add(data)
}

// add takes the objects of one kind. A kind that this version does not know is passed over.
func (c *supportReader) add(data []byte) error {
	var l SupportList
	if err := json.Unmarshal(data, &l); err != nil {
		return err
	}
	of := schema.FromAPIVersionAndKind(l.APIVersion, strings.TrimSuffix(l.Kind, "List"))
	if !c.kinds.Recognizes(of) {
		return nil
	}
	all := make([]client.Object, 0, len(l.Items))
	for i, item := range l.Items {
		o, err := decodeAs(c.kinds, of, item)
		if err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
		all = append(all, o)
	}
	c.objects[of.GroupKind()] = all
	return nil
}

func decodeAs(s *runtime.Scheme, gvk schema.GroupVersionKind, data []byte) (client.Object, error) {
	made, err := s.New(gvk)
	if err != nil {
		return nil, err
	}
	o, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is not an object", gvk.Kind)
	}
	return o, json.Unmarshal(data, o)
}
