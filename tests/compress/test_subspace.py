"""The principal subspace: numpy's in float64, PCA's of scikit-learn, and finite whatever the matrix."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.decomposition import PCA

from ragjax.compress.subspace import Subspace, principal_subspace, projection_residual

D = 24


def decaying(rows=300, seed=0, width=D, shift=0.05):
    """A matrix [rows, width] with singular values from 1 down to 1/width, its columns shifted."""
    generator = np.random.default_rng(seed)
    left = np.linalg.qr(generator.standard_normal((rows, width)))[0]
    right = np.linalg.qr(generator.standard_normal((width, width)))[0]
    return ((left / np.arange(1, width + 1)) @ right.T + shift * generator.standard_normal(width)).astype(np.float32)


def by_numpy(matrix, energy, squared=False, centred=False):
    """Rank, projector [D, D] and mean, from the full SVD in float64."""
    wide = np.asarray(matrix, np.float64)
    mean = wide.mean(axis=0) if centred else np.zeros(wide.shape[1])
    _, values, rows = np.linalg.svd(wide - mean, full_matrices=False)
    shares = np.cumsum(values**2 if squared else values)
    rank = int(np.argmax(shares >= energy * shares[-1])) + 1
    return rank, rows[:rank].T @ rows[:rank], mean


def projector(subspace):
    inside = np.asarray(subspace.vectors, np.float64) @ np.asarray(subspace.vectors, np.float64).T
    return np.eye(len(inside)) - inside if subspace.complement else inside


def vectors_of(seed=1, count=50, width=D):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("energy", [0.5, 0.9, 0.95, 0.99])
def test_rank_projector_and_residual_are_numpys(energy, squared, centred):
    matrix, x = decaying(), vectors_of()
    found = principal_subspace(matrix, energy=energy, squared=squared, centred=centred)
    rank, inside, mean = by_numpy(matrix, energy, squared, centred)
    assert (found.rank, found.energy, found.note) == (rank, energy, "")
    assert found.vectors.shape[1] == min(rank, D - rank)
    assert found.complement == (rank > D - rank)
    assert found.vectors.dtype == np.float32
    np.testing.assert_allclose(projector(found), inside, atol=1e-5)
    expected = np.linalg.norm((x - mean) - (x - mean) @ inside, axis=1)
    np.testing.assert_allclose(projection_residual(found, x), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("energy", [0.6, 0.95])
def test_squared_and_centred_is_the_pca_of_scikit_learn(energy):
    matrix, x = decaying(), vectors_of()
    pca = PCA(n_components=energy, svd_solver="full").fit(matrix.astype(np.float64))
    found = principal_subspace(matrix, energy=energy, squared=True, centred=True)
    assert found.rank == pca.n_components_
    expected = np.linalg.norm(x - pca.inverse_transform(pca.transform(x)), axis=1)
    np.testing.assert_allclose(projection_residual(found, x), expected, rtol=1e-5)


@pytest.mark.parametrize("rank", [1, 11, 12, 13, 23])
def test_both_forms_are_one_projector(rank):
    basis = np.linalg.qr(np.random.default_rng(rank).standard_normal((D, D)))[0].astype(np.float32)
    small = Subspace(basis[:, :rank], None, False, rank, 0.9)
    large = Subspace(basis[:, rank:], None, True, rank, 0.9)
    x = vectors_of()
    np.testing.assert_allclose(projection_residual(small, x), projection_residual(large, x), rtol=2e-5, atol=1e-6)
    inside = x @ projector(small)
    np.testing.assert_allclose(projection_residual(small, inside.astype(np.float32)), 0, atol=1e-5)


def test_close_singular_values_are_told_apart():
    """Where the rank falls between two values that differ by 2e-4 of themselves, float32 would mix their directions."""
    generator = np.random.default_rng(4)
    left, right = (np.linalg.qr(generator.standard_normal((n, D)))[0] for n in (300, D))
    values = np.r_[500.0, np.full(11, 2.0), 1.9996, np.full(11, 1.9992)]
    matrix = (left * values @ right.T).astype(np.float64)
    energy = values[:13].sum() / values.sum() - 1e-9
    found, x = principal_subspace(matrix, energy=energy), vectors_of()
    assert found.rank == 13
    np.testing.assert_allclose(projection_residual(found, x), np.linalg.norm(x @ right[:, 13:], axis=1), rtol=2e-5)
    assert jnp.asarray(1.0).dtype == jnp.float32  # the precision was this computation's alone


def test_residuals_are_a_pure_function_of_arrays():
    found, x = principal_subspace(decaying(), energy=0.8, centred=True), vectors_of(count=12)
    plain = projection_residual(found, x)
    np.testing.assert_allclose(jax.jit(projection_residual)(found, x), plain, rtol=1e-6)
    stacked = jax.vmap(projection_residual, in_axes=(None, 0))(found, x.reshape(3, 4, D))
    np.testing.assert_allclose(stacked.reshape(-1), plain, rtol=1e-6)
    assert projection_residual(found, x[0]).shape == ()
    assert np.isnan(projection_residual(found, np.full(D, np.nan, np.float32)))


def test_S02_half_precision_is_widened():
    """XLA has no SVD of bfloat16: its rows give what the same numbers in float32 give."""
    for dtype in (jnp.bfloat16, jnp.float16):
        narrow = jnp.asarray(decaying(), dtype)
        wide = np.asarray(narrow, np.float32)
        for matrix in (narrow, np.asarray(narrow), jnp.asarray(wide)):
            found, expected = principal_subspace(matrix), principal_subspace(wide)
            assert found.rank == expected.rank
            np.testing.assert_allclose(projector(found), projector(expected), atol=1e-6)


def test_S03_a_tall_matrix_has_numpys_thin_subspace():
    """20,000 x 64, in several blocks: principal angles below 1e-3."""
    matrix = decaying(20_000, width=64)
    found = principal_subspace(matrix)
    rank, inside, _ = by_numpy(matrix, 0.95)
    assert found.rank == rank
    sine = np.linalg.norm(projector(found) - inside, ord=2)
    assert np.arcsin(sine) < 1e-3


MEMORY = """
import sys, threading, time
import jax, jax.numpy as jnp, numpy as np
from ragjax.compress.subspace import principal_subspace

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

matrix = np.random.default_rng(0).standard_normal((262_144, 64), np.float32)
if sys.argv[1] == "bfloat16":
    matrix = jnp.asarray(matrix, jnp.bfloat16)
principal_subspace(matrix[:64])
seen, running = [resident()], [True]
def watch():
    while running:
        seen.append(resident())
        time.sleep(0.002)
watcher = threading.Thread(target=watch)
watcher.start()
principal_subspace(matrix)
running.clear()
watcher.join()
print((max(seen) - seen[0]) / (262_144 * 64 * 4))
"""


@pytest.mark.parametrize("kind", ["numpy", "bfloat16"])
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_S03_memory_stays_within_thrice_the_matrix(kind, capsys):
    done = subprocess.run([sys.executable, "-c", MEMORY, kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with capsys.disabled():
        print(f"\n  262,144 x 64 {kind}: {float(done.stdout):.2f} of its float32 size beside the matrix")
    # The matrix itself may be one of the three.
    assert float(done.stdout) < 2


def test_S04_signs_do_not_matter():
    found, x = principal_subspace(decaying(), energy=0.8), vectors_of()
    signs = np.where(np.arange(found.vectors.shape[1]) % 2, -1, 1).astype(np.float32)
    flipped = found.replace(vectors=found.vectors * signs)
    np.testing.assert_allclose(projection_residual(flipped, x), projection_residual(found, x), rtol=1e-6)
    turned = principal_subspace(-decaying()[::-1], energy=0.8)
    np.testing.assert_allclose(projection_residual(turned, x), projection_residual(found, x), rtol=1e-5)


def test_S04_rotation_inside_equal_singular_values_does_not_matter():
    """Two directions of one singular value, both kept: any basis of their plane is as good."""
    generator = np.random.default_rng(3)
    left, right = (np.linalg.qr(generator.standard_normal((n, 8)))[0] for n in (200, 8))
    values = np.array([5, 3, 3, 0.1, 0.1, 0.1, 0.1, 0.1])
    angle = 0.7
    turn = np.eye(8)
    turn[1:3, 1:3] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    x = vectors_of(width=8)
    one, two = (principal_subspace((left * values @ basis.T).astype(np.float32)) for basis in (right, right @ turn))
    assert one.rank == two.rank == 3
    np.testing.assert_allclose(projection_residual(one, x), projection_residual(two, x), rtol=1e-5)
    rotated = one.replace(vectors=one.vectors @ turn[:3, :3].astype(np.float32))
    np.testing.assert_allclose(projection_residual(rotated, x), projection_residual(one, x), rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_S05_values_that_are_not_finite_are_refused_by_row(bad):
    matrix = decaying(40_000, width=64)
    matrix[39_321, 3] = bad
    for kind in (matrix, jnp.asarray(matrix)):
        with pytest.raises(ValueError, match="row 39321 of the matrix has a value that is not finite"):
            principal_subspace(kind)


@pytest.mark.parametrize("centred", [False, True])
def test_S05_deficient_matrices_give_finite_scores(centred):
    line = np.random.default_rng(2).standard_normal(D).astype(np.float32)
    scales = np.linspace(1, 2, 300, dtype=np.float32)[:, None]
    cases = {
        "rank 1": (scales * line, 1),
        "all rows equal": (np.tile(line, (300, 1)), 0 if centred else 1),
        "zeros": (np.zeros((300, D), np.float32), 0),
        "one row": (line[None], 0 if centred else 1),
        "fewer rows than columns": (decaying()[:6], None),
    }
    x = vectors_of()
    for name, (matrix, rank) in cases.items():
        for energy in (0.5, 0.95):
            found = principal_subspace(matrix, energy=energy, centred=centred)
            assert rank in (None, found.rank), name
            scores = np.asarray(projection_residual(found, x))
            assert np.isfinite(scores).all(), name
            if rank != 0:
                expected, inside, mean = by_numpy(matrix, energy, centred=centred)
                assert found.rank == expected, name
                np.testing.assert_allclose(scores, np.linalg.norm((x - mean) @ (np.eye(D) - inside), axis=1), rtol=1e-4)
        assert np.isfinite(projection_residual(principal_subspace(matrix, energy=1.0, centred=centred), x)).all(), name


def test_S05_rows_of_zeros_are_harmless():
    matrix, x = decaying(), vectors_of()
    padded = np.concatenate([matrix, np.zeros((100, D), np.float32)])
    plain, more = principal_subspace(matrix), principal_subspace(padded)
    assert plain.rank == more.rank
    np.testing.assert_allclose(projection_residual(plain, x), projection_residual(more, x), rtol=1e-5)


def test_S05_an_svd_of_nan_is_replaced_and_noted(monkeypatch):
    def failing(factor, full_matrices):
        assert not full_matrices
        count = len(factor)
        return jnp.eye(count), jnp.arange(count, 0, -1.0), jnp.full((count, count), jnp.nan)

    usual = principal_subspace(decaying(), centred=True)
    monkeypatch.setattr(jnp.linalg, "svd", failing)
    found = principal_subspace(decaying(), centred=True)
    assert found.note == "the SVD returned NaN: eigenvectors of the Gram matrix in float64"
    assert found.rank == usual.rank
    np.testing.assert_allclose(projector(found), projector(usual), atol=1e-5)


def test_S02_without_a_cpu_backend_numpy_does_it_all(monkeypatch):
    def absent(backend):
        raise RuntimeError(f"Unknown backend {backend}")

    usual = principal_subspace(decaying())
    monkeypatch.setattr(jax, "local_devices", absent)
    monkeypatch.setattr(jnp.linalg, "svd", lambda *_, **__: pytest.fail("the SVD ran on another backend"))
    found = principal_subspace(decaying())
    assert found.note.startswith("no CPU backend is visible")
    assert found.rank == usual.rank
    np.testing.assert_allclose(projector(found), projector(usual), atol=1e-5)


def test_more_energy_is_a_larger_subspace_and_all_of_it_leaves_nothing():
    x, ranks = vectors_of(), []
    for energy in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0):
        found = principal_subspace(decaying(), energy=energy)
        ranks.append(found.rank)
        assert (projection_residual(found, x) <= np.linalg.norm(x, axis=1) * (1 + 1e-6)).all()
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[3] < ranks[-1] == D
    np.testing.assert_array_equal(projection_residual(found, x), 0)


@pytest.mark.parametrize("energy", [0.0, -0.1, 1.0001, float("nan")])
def test_impossible_energies_are_refused(energy):
    with pytest.raises(ValueError, match=r"energy is a share in \(0, 1\]"):
        principal_subspace(decaying(), energy=energy)


def test_a_matrix_without_rows_is_refused():
    with pytest.raises(ValueError, match=r"needs a matrix with rows, got shape \[0, 24\]"):
        principal_subspace(np.zeros((0, D), np.float32))
