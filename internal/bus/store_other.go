//go:build !(linux || darwin || freebsd)

package bus

import "errors"

// diskSpace is not known here.
func diskSpace(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }
