! SPDX-License-Identifier: BSD-3-Clause
! Online training inside a solver: 12 rods with different initial temperatures cool down, a small network learns from
! their states how a rod changes in one step, and then replaces every second step of the solver.
!
!     mpirun -np 4 heat FOLDER [STEPS]
!
! The rods are the lanes of the training (train.lanes): with any number of ranks, and after a kill and a new start with
! the same FOLDER, the last line has the same digits.
program heat
  use, intrinsic :: iso_fortran_env, only: real64
  use mpi
  use lockstep
  implicit none

  integer, parameter :: points = 32, rods = 12, substeps = 8, save_every = 50
  real(real64), parameter :: diffusion = 0.2d0
  type(lockstep_run) :: run
  character(len=80) :: settings(14)
  character(len=64) :: folder, word
  integer :: steps, rank, error, first, count, step, i
  real(real64), allocatable :: u(:, :), next(:, :), change(:, :)
  real(real64) :: loss, errors(rods), norms(rods)

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call get_command_argument(1, folder)
  steps = 400
  if (command_argument_count() > 1) then
    call get_command_argument(2, word)
    read (word, *) steps
  end if

  settings = [character(len=80) :: "data.input_shape=32", "data.target_shape=32", "model.name=mlp", &
              "model.hidden=64", "model.activation=tanh", "optim.name=adamw", "optim.lr=0.003", "run.threads=1", &
              "train.lanes=12", "train.global_batch_size=48", "buffer.capacity=200", "ckpt.buffer=true", &
              "resume=auto", "run.dir="//folder]
  call lockstep_open(run, settings, MPI_COMM_WORLD)
  call lockstep_lanes(run, first, count)
  allocate (u(points, count), next(points, count), change(points, count))

  ! A new start repeats the steps of the solver, which are cheap; network and buffers continue from the checkpoint.
  loss = 0
  call begin(u)
  do step = 1, steps
    next = u
    call solve(next)
    change = next - u
    if (step > lockstep_step(run)) then
      do i = 1, count
        call lockstep_push(run, u(:, i:i), change(:, i:i), lane=first + i - 1)
      end do
      call lockstep_train_buffer(run, 1, loss)
      if (mod(step, save_every) == 0) call lockstep_save(run)
      if (rank == 0 .and. mod(step, 100) == 0) print "(a, i0, a, es9.2)", "step ", step, ": loss ", loss
    end if
    u = next
    if (mod(step, 40) == 0) call begin(u)  ! rods that have cooled down teach nothing
  end do

  ! Every second step of the solver is one of the network.
  call begin(u)
  next = u
  do step = 1, 10
    call solve(next)
    if (mod(step, 2) == 1) then
      call solve(u)
    else
      do i = 1, count  ! rod by rod: the last bits of a prediction depend on the number of samples
        call lockstep_predict(run, u(:, i:i), change(:, i:i))
      end do
      u = u + change
    end if
  end do
  errors = 0
  norms = 0
  errors(first + 1:first + count) = sum((u - next)**2, dim=1)
  norms(first + 1:first + count) = sum(next**2, dim=1)
  call MPI_Allreduce(MPI_IN_PLACE, errors, rods, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call MPI_Allreduce(MPI_IN_PLACE, norms, rods, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call lockstep_close(run)
  if (rank == 0) print "(a, es23.16)", "relative error after 10 steps: ", sqrt(sum(errors)/sum(norms))
  call MPI_Finalize(error)

contains

  !> Initial temperatures of the rods of this rank.
  subroutine begin(rod)
    real(real64), intent(out) :: rod(:, :)
    real(real64), parameter :: pi = acos(-1d0)
    integer :: x, r, wave
    do r = 1, size(rod, 2)
      do x = 1, points
        rod(x, r) = 0
        do wave = 1, 4
          rod(x, r) = rod(x, r) + cos(wave*(first + r) + 2*pi*wave*x/points)/wave
        end do
      end do
    end do
  end subroutine begin

  !> One step of the solver: explicit, periodic.
  subroutine solve(rod)
    real(real64), intent(inout) :: rod(:, :)
    integer :: s
    do s = 1, substeps
      rod = rod + diffusion*(cshift(rod, 1, dim=1) - 2*rod + cshift(rod, -1, dim=1))
    end do
  end subroutine solve

end program heat
