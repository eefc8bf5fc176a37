package simulate

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"

	"github.com/refit-dev/refit/internal/peerapi"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Releases that the nodes leave and reach.
const (
	from = "v1.35.4"
	to   = "v1.36.3"
)

// simulatedMedium is the header of the bundle; nothing reads more of it.
type simulatedMedium struct {
	header []byte
	digest string
}

// newMedium makes the header of a release with as many images as a small site has.
func newMedium() (*simulatedMedium, error) {
	m := &bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: "0.0.1", Name: "simulated", Version: to[1:], KubernetesVersion: to,
		Platforms: []string{"linux/amd64"}, ChunkSize: bundle.DefaultChunkSize}
	var table []byte
	blob := func(content string) (string, int64, int) {
		sum := sha256.Sum256([]byte(content))
		table = append(table, sum[:]...)
		d := bundle.DigestOf([]byte(content))
		m.Blobs = append(m.Blobs, bundle.Blob{Digest: d, Size: int64(len(content))})
		return d, int64(len(content)), len(m.Blobs) - 1
	}
	for i := range 24 {
		name := fmt.Sprintf("registry.k8s.io/part-%02d:%s", i, to)
		d, size, n := blob(name)
		m.Images = append(m.Images, bundle.Image{Name: name, Digest: d, MediaType: "application/vnd.oci.image.manifest.v1+json", Group: bundle.GroupNode, Size: size, Blobs: []int{n}})
	}
	for _, p := range []string{bundle.PayloadKubeadm, bundle.PayloadKubelet} {
		d, size, n := blob(p + to)
		m.Payloads = append(m.Payloads, bundle.Payload{Name: p, Version: to, Platform: "linux/amd64", Digest: d, Size: size, Mode: 0o755, Blob: n})
	}
	raw, err := bundle.Marshal(m, table)
	if err != nil {
		return nil, err
	}
	h, err := bundle.ParseHeader(raw)
	if err != nil {
		return nil, err
	}
	return &simulatedMedium{raw, h.Digest}, nil
}

// chunkServer answers the controller in the name of all nodes; they share a key.
type chunkServer struct {
	medium  *simulatedMedium
	key     string
	address string
	server  *http.Server
}

func serveChunks(s *simulatedMedium) (*chunkServer, error) {
	key, _, err := peerapi.NewKey()
	if err != nil {
		return nil, err
	}
	id, err := peerapi.NewIdentity(key)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the bundle's header: %w", err)
	}
	c := &chunkServer{medium: s, key: id.PublicKey(), address: l.Addr().String()}
	c.server = peerapi.NewServer(peerapi.Handler(c, peerapi.Alive{Node: "simulated"}))
	c.server.TLSConfig = id.ServerTLS(func(string) bool { return true })
	go func() { _ = c.server.ServeTLS(l, "", "") }() // ends with Close
	return c, nil
}

func (c *chunkServer) Header(digest string) ([]byte, error) {
	if digest != c.medium.digest {
		return nil, peerapi.ErrNotHere
	}
	return c.medium.header, nil
}
func (c *chunkServer) Have(string) ([]byte, error)               { return nil, peerapi.ErrNotHere }
func (c *chunkServer) Chunk(string, int, []byte) ([]byte, error) { return nil, peerapi.ErrNotHere }
