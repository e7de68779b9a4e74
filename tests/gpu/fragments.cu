/* fragments - do products, loads of matrices and copies of tensor_core.h lay numbers out as PTX says?
 *
 * On a GPU this asks the instructions, over the emulation what stands for them. Rows and columns are those of the PTX
 * ISA's section "Matrix fragments for mma.m16n8k16 with floating point type", element by element; all numbers are small
 * integers, so that sums are exact. Exit status: 0, 1 when something is wrong, 77 without a GPU. */
#include <cstdio>
#include <cstring>

#include "worker/engine/kernels/cuda/device.h"
#include "worker/engine/kernels/cuda/tensor_core.h"

namespace
{

struct matrices {
    uint16_t a[16][16], b[16][8]; /* bf16 */
    float c[16][8], twice[16][8]; /* c + a · b; bf16(c) as the left part of an A, times the upper half of b */
    uint16_t loaded[2][4][32][2]; /* of load_matrices and its transposed twin: matrix, lane, element */
    uint16_t copied[32][8], small[32][2];
};

__global__ void all(matrices *x)
{
    SHARED_BYTES(bytes);
    const int lane = (int)threadIdx.x, group = lane >> 2, in_group = lane % 4;
    uint32_t a[4] = {0}, b[2] = {0}, r[4], left[4] = {0};
    float c[4], twice[4] = {0};
    uint16_t *const shared = (uint16_t *)bytes;

    for (int i = 0; i < 8; i++) { /* a0 .. a7 */
        const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
        const int col = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);

        a[i / 2] |= (uint32_t)x->a[row][col] << 16 * (i & 1);
    }
    for (int i = 0; i < 4; i++) { /* b0 .. b3 */
        const int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);

        b[i / 2] |= (uint32_t)x->b[row][group] << 16 * (i & 1);
    }
    for (int i = 0; i < 4; i++)
        c[i] = x->c[group + (i < 2 ? 0 : 8)][in_group * 2 + (i & 1)];
    left[0] = two_bf16(c[0], c[1]);
    left[1] = two_bf16(c[2], c[3]);
    product(twice, left, b[0], 0);
    product(c, a, b[0], b[1]);
    for (int i = 0; i < 4; i++) {
        x->c[group + (i < 2 ? 0 : 8)][in_group * 2 + (i & 1)] = c[i];
        x->twice[group + (i < 2 ? 0 : 8)][in_group * 2 + (i & 1)] = twice[i];
    }

    /* Row r of matrix m holds 64 m + 8 r + column; rows stand in an order of their own. */
    for (int i = 0; i < 8; i++)
        shared[(lane / 8 * 8 + (lane + 3) % 8) * 8 + i] = (uint16_t)(lane * 8 + i);
    __syncthreads();
    load_matrices(shared_at(shared + (lane / 8 * 8 + (lane + 3) % 8) * 8), r);
    for (int m = 0; m < 4; m++)
        memcpy(x->loaded[0][m][lane], &r[m], 4);
    load_matrices_transposed(shared_at(shared + (lane / 8 * 8 + (lane + 3) % 8) * 8), r);
    for (int m = 0; m < 4; m++)
        memcpy(x->loaded[1][m][lane], &r[m], 4);

    /* The first eight numbers of a's rows, every third of them not there; then two of each. A barrier before, for
     * whoever still loads; each lane looks at what its neighbour copied. */
    __syncthreads();
    copy_16(shared_at(shared + lane * 8), x->a[lane % 16], lane % 3 != 0);
    copy_4(shared_at(shared + 256 + lane * 2), &x->a[lane % 16][2], lane % 3 != 1);
    copies_begun();
    copies_wait();
    __syncthreads();
    memcpy(x->copied[(lane + 1) % 32], shared + (lane + 1) % 32 * 8, 16);
    memcpy(x->small[(lane + 1) % 32], shared + 256 + (lane + 1) % 32 * 2, 4);
}

int wrong;

void expect(const char *what, int i, int j, float want, float got)
{
    if (want != got && wrong++ < 20)
        (void)printf("%s [%d][%d] is %g and should be %g\n", what, i, j, (double)got, (double)want);
}

void compare(const matrices &before, const matrices &x)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = before.c[i][j], twice = 0;

            for (int k = 0; k < 16; k++)
                sum += bf16_to_float(before.a[i][k]) * bf16_to_float(before.b[k][j]);
            for (int k = 0; k < 8; k++)
                twice += before.c[i][k] * bf16_to_float(before.b[k][j]);
            expect("the product", i, j, sum, x.c[i][j]);
            expect("the product of a product", i, j, twice, x.twice[i][j]);
        }
    for (int m = 0; m < 4; m++)
        for (int lane = 0; lane < 32; lane++)
            for (int e = 0; e < 2; e++) {
                const int row = lane / 4, col = lane % 4 * 2 + e;

                expect("a matrix", m * 32 + lane, e, (float)(64 * m + 8 * row + col), x.loaded[0][m][lane][e]);
                expect("a transposed matrix", m * 32 + lane, e, (float)(64 * m + 8 * col + row),
                       x.loaded[1][m][lane][e]);
            }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8; i++) {
            expect("a copy", lane, i, lane % 3 != 0 ? before.a[lane % 16][i] : 0, x.copied[lane][i]);
            if (i < 2)
                expect("a small copy", lane, i, lane % 3 != 1 ? before.a[lane % 16][2 + i] : 0, x.small[lane][i]);
        }
}

} // namespace

int main()
{
    matrices *x, before;
    cudaError_t e = cudaMallocManaged((void **)&x, sizeof(*x), cudaMemAttachGlobal);

    if (e != cudaSuccess) {
        (void)printf("fragments: nothing is checked: %s\n", cudaGetErrorString(e));
        return 77;
    }
    memset(x, 0, sizeof(*x));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) { /* no two rows or columns alike */
            x->a[i][j] = bf16_from_float((float)((i * 7 + j * j * 3 + i * j) % 19 - 9));
            if (j < 8) {
                x->b[i][j] = bf16_from_float((float)((i * i * 5 + j * 11 + i * j * 2) % 17 - 8));
                x->c[i][j] = (float)((i * 3 + j * 13 + i * j) % 23 - 11);
            }
        }
    before = *x;
    LAUNCH(all, 1, 32, 1024, (void *)nullptr, x);
    e = cudaGetLastError();
    if (e == cudaSuccess)
        e = cudaDeviceSynchronize();
    if (e != cudaSuccess) {
        (void)printf("fragments: %s\n", cudaGetErrorString(e));
        return 1;
    }
    compare(before, *x);
    (void)printf("fragments: %s\n", wrong ? "wrong" : "as documented");
    (void)cudaFree(x);
    return wrong > 0;
}
