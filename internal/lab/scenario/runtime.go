package scenario

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime opens a node's container runtime.
func (s *Scenario) runtime(node string) (*grpc.ClientConn, error) {
	socket, err := s.socket(node)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// KillContainer ends the running container of a pod at once, as a crash does.
func (s *Scenario) KillContainer(ctx context.Context, node, namespace, pod, container string) error {
	conn, err := s.runtime(node)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := criapi.NewRuntimeServiceClient(conn)
	list, err := c.ListContainers(ctx, &criapi.ListContainersRequest{Filter: &criapi.ContainerFilter{
		State:         &criapi.ContainerStateValue{State: criapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.name": pod, "io.kubernetes.container.name": container}}})
	if err != nil {
		return fmt.Errorf("node %s: CRI ListContainers: %w", node, err)
	}
	if len(list.Containers) != 1 {
		return fmt.Errorf("node %s: %d containers %s of pod %s/%s run, want one", node, len(list.Containers), container, namespace, pod)
	}
	_, err = c.StopContainer(ctx, &criapi.StopContainerRequest{ContainerId: list.Containers[0].Id})
	return err
}

// RemoveImage takes an image off a node, behind everybody's back.
func (s *Scenario) RemoveImage(ctx context.Context, node, image string) error {
	conn, err := s.runtime(node)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = criapi.NewImageServiceClient(conn).RemoveImage(ctx, &criapi.RemoveImageRequest{Image: &criapi.ImageSpec{Image: image}})
	return err
}

// AppImage is the lab's test application, an OCI archive.
func (s *Scenario) AppImage() string { return s.app.Archive }
