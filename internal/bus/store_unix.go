//go:build linux || darwin || freebsd

package bus

import "golang.org/x/sys/unix"

// diskSpace is what there is free for this user, and in all, on the disk of a directory, in
// bytes.
func diskSpace(dir string) (free, total uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	size := uint64(s.Bsize) //nolint:gosec // signed on some systems
	//nolint:unconvert // signed on some systems
	return uint64(max(s.Bavail, 0)) * size, s.Blocks * size, nil
}
