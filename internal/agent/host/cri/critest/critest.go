// Package critest answers CRI from what a real runtime answered once.
//
// Promise: the calls by which refit learns what a runtime is and holds are answered
// as recorded, over a real socket; every other call is not implemented.
//
// Inputs: a record, made by Ask from a runtime that ran. Outputs: a socket.
// Callers: tests of the packages that read CRI.
package critest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Record is what a runtime answered.
type Record struct {
	Version *runtime.VersionResponse     `json:"version"`
	Images  *runtime.ListImagesResponse  `json:"images"`
	Places  *runtime.ImageFsInfoResponse `json:"places"`
}

// Capture records the answers of a runtime.
func Capture(ctx context.Context, socket string) (r Record, err error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return r, err
	}
	defer conn.Close()
	if r.Version, err = runtime.NewRuntimeServiceClient(conn).Version(ctx, &runtime.VersionRequest{}); err != nil {
		return r, err
	}
	c := runtime.NewImageServiceClient(conn)
	if r.Images, err = c.ListImages(ctx, &runtime.ListImagesRequest{}); err != nil {
		return r, err
	}
	r.Places, err = c.ImageFsInfo(ctx, &runtime.ImageFsInfoRequest{})
	return r, err
}

// Write keeps a record in a file.
func (r Record) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// ReadRecord reads a record from a file.
func ReadRecord(t *testing.T, path string) (r Record) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatalf("record of a runtime: %v", err)
	}
	return r
}

// Serve answers as recorded until the test ends, and returns the socket.
func (r Record) Serve(t *testing.T) string {
	t.Helper()
	return Listen(t, &recorded{images: images{r: r}, r: r})
}

// Server is a runtime with its images.
type Server interface {
	runtime.RuntimeServiceServer
	runtime.ImageServiceServer
}

// Listen serves a runtime until the test ends, and returns the socket.
func Listen(t *testing.T, s Server) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri") // short: the path of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(g, s)
	runtime.RegisterImageServiceServer(g, s)
	go func() { _ = g.Serve(l) }() // ends with Stop
	t.Cleanup(func() {
		g.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return socket
}

// images are apart: both services have a field of the same name.
type images struct {
	runtime.UnimplementedImageServiceServer
	r Record
}

type recorded struct {
	runtime.UnimplementedRuntimeServiceServer
	images
	r Record
}

func (s *recorded) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return s.r.Version, nil
}

func (s images) ListImages(context.Context, *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	return s.r.Images, nil
}

func (s images) ImageFsInfo(context.Context, *runtime.ImageFsInfoRequest) (*runtime.ImageFsInfoResponse, error) {
	return s.r.Places, nil
}

func (s images) ImageStatus(_ context.Context, q *runtime.ImageStatusRequest) (*runtime.ImageStatusResponse, error) {
	return &runtime.ImageStatusResponse{Image: Find(s.r.Images.GetImages(), q.GetImage().GetImage())}, nil
}

// Find is the image of a name or ID, nil if there is none.
func Find(all []*runtime.Image, name string) *runtime.Image {
	for _, i := range all {
		if i.GetId() == name || slices.Contains(i.GetRepoTags(), name) || slices.Contains(i.GetRepoDigests(), name) {
			return i
		}
	}
	return nil
}

// String is the runtime's name and version.
func (r Record) String() string {
	return fmt.Sprintf("%s %s", r.Version.GetRuntimeName(), r.Version.GetRuntimeVersion())
}
