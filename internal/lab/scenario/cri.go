package scenario

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

// socket is where this machine reaches a node's runtime.
func (s *Scenario) socket(node string) (string, error) {
	return s.Lab.Path(node, s.Lab.Socket(node))
}

// CRI is a node's container runtime as the kubelet sees it.
func (s *Scenario) CRI(node string) (*cri.Client, error) {
	socket, err := s.socket(node)
	if err != nil {
		return nil, err
	}
	return cri.Open(socket)
}

// criImages asks a node's runtime, through its CRI socket, which of the wanted
// images (name to digest) it has and which of these it calls pinned.
func criImages(ctx context.Context, socket string, wanted map[string]string) (held, pinned int, missing []string, err error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return 0, 0, nil, err
	}
	defer conn.Close()
	resp, err := criapi.NewImageServiceClient(conn).ListImages(ctx, &criapi.ListImagesRequest{})
	if err != nil {
		return 0, 0, nil, fmt.Errorf("CRI ListImages at %s: %w", socket, err)
	}
	for name, digest := range wanted {
		img := find(resp.Images, name, digest)
		switch {
		case img == nil:
			missing = append(missing, name+" (absent)")
		case !img.Pinned:
			held++
			missing = append(missing, name+" (not pinned)")
		default:
			held, pinned = held+1, pinned+1
		}
	}
	return held, pinned, missing, nil
}

// find is the image that has the name and whose digests include the digest.
func find(images []*criapi.Image, name, digest string) *criapi.Image {
	for _, i := range images {
		if !contains(i.RepoTags, name) {
			continue
		}
		for _, d := range i.RepoDigests {
			if strings.HasSuffix(d, "@"+digest) {
				return i
			}
		}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
