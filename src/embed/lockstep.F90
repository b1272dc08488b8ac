! SPDX-License-Identifier: BSD-3-Clause
!> Training and prediction inside a Fortran program; see lockstep/lockstep.h for the rules of each call.
!!
!! An array u(nx, ny, channels, samples) is read as samples of the shape [channels, ny, nx], without a copy. Arrays are
!! real32, real64, int32 or int64, of any rank and with any strides. They are in host memory, also for a run on a GPU.
!!
!! Each subroutine has an optional `status`, which receives 0 or the code of the failure; lockstep_message gives the
!! sentence. Without `status`, a failure prints the sentence and ends the job by MPI_Abort.
!!
!! Communicators are integers, as `use mpi` has them; a program with `use mpi_f08` passes comm%MPI_VAL, or compiles this
!! file with -DLOCKSTEP_MPI_F08 and passes comm.
module lockstep
  use, intrinsic :: iso_c_binding
#ifdef LOCKSTEP_MPI_F08
  use mpi_f08, only: MPI_Comm
#endif
  implicit none
  private

  public :: lockstep_run
  public :: lockstep_open, lockstep_close
  public :: lockstep_add, lockstep_add_output
  public :: lockstep_train, lockstep_push, lockstep_train_buffer, lockstep_predict
  public :: lockstep_update, lockstep_save, lockstep_resume, lockstep_metric, lockstep_log
  public :: lockstep_step, lockstep_parameter_count, lockstep_buffer_size, lockstep_lanes, lockstep_gradient_norm
  public :: lockstep_weights_step, lockstep_producers, lockstep_dropped
  public :: lockstep_message, lockstep_version

  !> The communicator of a run that is this process alone.
  integer, parameter, public :: lockstep_alone = -huge(0) - 1

  !> A run. A copy of it is the same run.
  type :: lockstep_run
    private
    type(c_ptr) :: handle = c_null_ptr
    type(c_ptr) :: arrays = c_null_ptr   ! named for the next call
    type(c_ptr) :: outputs = c_null_ptr
  end type lockstep_run

  !> lockstep_open(run, settings, comm): opens a run. Collective over `comm`.
  interface lockstep_open
    module procedure open_on
#ifdef LOCKSTEP_MPI_F08
    module procedure open_on_f08
#endif
  end interface lockstep_open

  !> lockstep_train(run, input, target [, loss]), or lockstep_train(run [, loss]) after lockstep_add. Collective.
  interface lockstep_train
    module procedure train_two
    module procedure train_added
  end interface lockstep_train

  !> lockstep_push(run, input, target [, lane]), or lockstep_push(run [, lane]) after lockstep_add.
  interface lockstep_push
    module procedure push_two
    module procedure push_added
  end interface lockstep_push

  !> lockstep_predict(run, input, output), or lockstep_predict(run) after lockstep_add and lockstep_add_output.
  interface lockstep_predict
    module procedure predict_two
    module procedure predict_added
  end interface lockstep_predict

  interface
    function c_open(settings, count, comm, run) bind(C, name="lockstep_open") result(code)
      import
      type(c_ptr), intent(in) :: settings(*)
      integer(c_int), value :: count, comm
      type(c_ptr), intent(out) :: run
      integer(c_int) :: code
    end function c_open
    function c_close(run) bind(C, name="lockstep_close") result(code)
      import
      type(c_ptr), intent(inout) :: run
      integer(c_int) :: code
    end function c_close
    subroutine c_add(list, name, array) bind(C, name="lockstep_f_add")
      import
      type(c_ptr), intent(inout) :: list
      character(kind=c_char), intent(in) :: name(*)
      type(*), dimension(..), intent(in) :: array
    end subroutine c_add
    subroutine c_clear(list) bind(C, name="lockstep_f_clear")
      import
      type(c_ptr), intent(inout) :: list
    end subroutine c_clear
    function c_train(run, list, loss) bind(C, name="lockstep_f_train") result(code)
      import
      type(c_ptr), value :: run
      type(c_ptr), intent(inout) :: list
      real(c_double), intent(out) :: loss
      integer(c_int) :: code
    end function c_train
    function c_push(run, lane, list) bind(C, name="lockstep_f_push") result(code)
      import
      type(c_ptr), value :: run
      integer(c_int64_t), value :: lane
      type(c_ptr), intent(inout) :: list
      integer(c_int) :: code
    end function c_push
    function c_train_buffer(run, steps, loss) bind(C, name="lockstep_train_buffer") result(code)
      import
      type(c_ptr), value :: run
      integer(c_int64_t), value :: steps
      real(c_double), intent(out) :: loss
      integer(c_int) :: code
    end function c_train_buffer
    function c_predict(run, inputs, outputs) bind(C, name="lockstep_f_predict") result(code)
      import
      type(c_ptr), value :: run
      type(c_ptr), intent(inout) :: inputs, outputs
      integer(c_int) :: code
    end function c_predict
    function c_update(run) bind(C, name="lockstep_update") result(code)
      import
      type(c_ptr), value :: run
      integer(c_int) :: code
    end function c_update
    function c_save(run) bind(C, name="lockstep_save") result(code)
      import
      type(c_ptr), value :: run
      integer(c_int) :: code
    end function c_save
    function c_resume(run, from) bind(C, name="lockstep_resume") result(code)
      import
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: from(*)
      integer(c_int) :: code
    end function c_resume
    function c_metric(run, name, value) bind(C, name="lockstep_metric") result(code)
      import
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: value
      integer(c_int) :: code
    end function c_metric
    function c_log(run, text) bind(C, name="lockstep_log") result(code)
      import
      type(c_ptr), value :: run
      character(kind=c_char), intent(in) :: text(*)
      integer(c_int) :: code
    end function c_log
    function c_step(run) bind(C, name="lockstep_step") result(step)
      import
      type(c_ptr), value :: run
      integer(c_int64_t) :: step
    end function c_step
    function c_weights_step(run) bind(C, name="lockstep_weights_step") result(step)
      import
      type(c_ptr), value :: run
      integer(c_int64_t) :: step
    end function c_weights_step
    function c_producers(run) bind(C, name="lockstep_producers") result(count)
      import
      type(c_ptr), value :: run
      integer(c_int64_t) :: count
    end function c_producers
    function c_dropped(run) bind(C, name="lockstep_dropped") result(count)
      import
      type(c_ptr), value :: run
      integer(c_int64_t) :: count
    end function c_dropped
    function c_parameter_count(run) bind(C, name="lockstep_parameter_count") result(count)
      import
      type(c_ptr), value :: run
      integer(c_int64_t) :: count
    end function c_parameter_count
    function c_buffer_size(run) bind(C, name="lockstep_buffer_size") result(size)
      import
      type(c_ptr), value :: run
      integer(c_int64_t) :: size
    end function c_buffer_size
    function c_lanes(run, first, count) bind(C, name="lockstep_lanes") result(code)
      import
      type(c_ptr), value :: run
      integer(c_int64_t), intent(out) :: first, count
      integer(c_int) :: code
    end function c_lanes
    function c_gradient_norm(run, norm) bind(C, name="lockstep_gradient_norm") result(code)
      import
      type(c_ptr), value :: run
      real(c_double), intent(out) :: norm
      integer(c_int) :: code
    end function c_gradient_norm
    function c_error(run) bind(C, name="lockstep_error") result(text)
      import
      type(c_ptr), value :: run
      type(c_ptr) :: text
    end function c_error
    function c_version() bind(C, name="lockstep_version") result(text)
      import
      type(c_ptr) :: text
    end function c_version
    subroutine c_fail(run, code) bind(C, name="lockstep_f_fail")
      import
      type(c_ptr), value :: run
      integer(c_int), value :: code
    end subroutine c_fail
    function c_length(text) bind(C, name="strlen") result(length)
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function c_length
  end interface

contains

  !> @param settings  texts "key=value"; blanks at their ends do not count
  !> @param comm      the communicator, or lockstep_alone
  subroutine open_on(run, settings, comm, status)
    type(lockstep_run), intent(out) :: run
    character(len=*), intent(in) :: settings(:)
    integer, intent(in) :: comm
    integer, intent(out), optional :: status
    character(kind=c_char, len=len(settings) + 1), target :: texts(size(settings))
    type(c_ptr) :: pointers(size(settings))
    integer :: i
    do i = 1, size(settings)
      texts(i) = trim(settings(i)) // c_null_char
      pointers(i) = c_loc(texts(i))
    end do
    call finish(c_null_ptr, c_open(pointers, size(settings), int(comm, c_int), run%handle), status)
  end subroutine open_on

#ifdef LOCKSTEP_MPI_F08
  subroutine open_on_f08(run, settings, comm, status)
    type(lockstep_run), intent(out) :: run
    character(len=*), intent(in) :: settings(:)
    type(MPI_Comm), intent(in) :: comm
    integer, intent(out), optional :: status
    call open_on(run, settings, comm%MPI_VAL, status)
  end subroutine open_on_f08
#endif

  !> Ends a run. Collective.
  subroutine lockstep_close(run, status)
    type(lockstep_run), intent(inout) :: run
    integer, intent(out), optional :: status
    call c_clear(run%arrays)
    call c_clear(run%outputs)
    call finish(c_null_ptr, c_close(run%handle), status)
  end subroutine lockstep_close

  !> Names an array for the next call of lockstep_train, lockstep_push or lockstep_predict.
  subroutine lockstep_add(run, name, array)
    type(lockstep_run), intent(inout) :: run
    character(len=*), intent(in) :: name
    type(*), dimension(..), intent(in), target :: array
    call c_add(run%arrays, trim(name) // c_null_char, array)
  end subroutine lockstep_add

  !> Names an array that the next call of lockstep_predict writes.
  subroutine lockstep_add_output(run, name, array)
    type(lockstep_run), intent(inout) :: run
    character(len=*), intent(in) :: name
    type(*), dimension(..), intent(inout), target :: array
    call c_add(run%outputs, trim(name) // c_null_char, array)
  end subroutine lockstep_add_output

  subroutine train_two(run, input, target, loss, status)
    type(lockstep_run), intent(inout) :: run
    type(*), dimension(..), intent(in), target :: input, target
    real(c_double), intent(out), optional :: loss
    integer, intent(out), optional :: status
    call lockstep_add(run, "input", input)
    call lockstep_add(run, "target", target)
    call train_added(run, loss, status)
  end subroutine train_two

  subroutine train_added(run, loss, status)
    type(lockstep_run), intent(inout) :: run
    real(c_double), intent(out), optional :: loss
    integer, intent(out), optional :: status
    real(c_double) :: mean
    integer(c_int) :: code
    mean = 0
    code = c_train(run%handle, run%arrays, mean)
    if (present(loss)) loss = mean
    call finish(run%handle, code, status)
  end subroutine train_added

  subroutine push_two(run, input, target, lane, status)
    type(lockstep_run), intent(inout) :: run
    type(*), dimension(..), intent(in), target :: input, target
    integer, intent(in), optional :: lane
    integer, intent(out), optional :: status
    call lockstep_add(run, "input", input)
    call lockstep_add(run, "target", target)
    call push_added(run, lane, status)
  end subroutine push_two

  subroutine push_added(run, lane, status)
    type(lockstep_run), intent(inout) :: run
    integer, intent(in), optional :: lane
    integer, intent(out), optional :: status
    integer(c_int64_t) :: number
    number = -1
    if (present(lane)) number = lane
    call finish(run%handle, c_push(run%handle, number, run%arrays), status)
  end subroutine push_added

  !> Steps on samples that are drawn from the buffers. Collective.
  subroutine lockstep_train_buffer(run, steps, loss, status)
    type(lockstep_run), intent(inout) :: run
    integer, intent(in) :: steps
    real(c_double), intent(out), optional :: loss
    integer, intent(out), optional :: status
    real(c_double) :: mean
    integer(c_int) :: code
    mean = 0
    code = c_train_buffer(run%handle, int(steps, c_int64_t), mean)
    if (present(loss)) loss = mean
    call finish(run%handle, code, status)
  end subroutine lockstep_train_buffer

  subroutine predict_two(run, input, output, status)
    type(lockstep_run), intent(inout) :: run
    type(*), dimension(..), intent(in), target :: input
    type(*), dimension(..), intent(inout), target :: output
    integer, intent(out), optional :: status
    call lockstep_add(run, "input", input)
    call lockstep_add_output(run, "output", output)
    call predict_added(run, status)
  end subroutine predict_two

  subroutine predict_added(run, status)
    type(lockstep_run), intent(inout) :: run
    integer, intent(out), optional :: status
    call finish(run%handle, c_predict(run%handle, run%arrays, run%outputs), status)
  end subroutine predict_added

  !> Gives lockstep_predict the average of the weights, if the run has one. Collective. On a producer, takes the weights
  !! of the ranks that train.
  subroutine lockstep_update(run, status)
    type(lockstep_run), intent(inout) :: run
    integer, intent(out), optional :: status
    call finish(run%handle, c_update(run%handle), status)
  end subroutine lockstep_update

  !> Saves a checkpoint. Collective.
  subroutine lockstep_save(run, status)
    type(lockstep_run), intent(inout) :: run
    integer, intent(out), optional :: status
    call finish(run%handle, c_save(run%handle), status)
  end subroutine lockstep_save

  !> Continues from a checkpoint: a step, a path, or "must" for the newest one of run.dir. Collective.
  subroutine lockstep_resume(run, from, status)
    type(lockstep_run), intent(inout) :: run
    character(len=*), intent(in) :: from
    integer, intent(out), optional :: status
    call finish(run%handle, c_resume(run%handle, trim(from) // c_null_char), status)
  end subroutine lockstep_resume

  subroutine lockstep_metric(run, name, value, status)
    type(lockstep_run), intent(inout) :: run
    character(len=*), intent(in) :: name
    real(c_double), intent(in) :: value
    integer, intent(out), optional :: status
    call finish(run%handle, c_metric(run%handle, trim(name) // c_null_char, value), status)
  end subroutine lockstep_metric

  subroutine lockstep_log(run, text, status)
    type(lockstep_run), intent(inout) :: run
    character(len=*), intent(in) :: text
    integer, intent(out), optional :: status
    call finish(run%handle, c_log(run%handle, trim(text) // c_null_char), status)
  end subroutine lockstep_log

  function lockstep_step(run) result(step)
    type(lockstep_run), intent(in) :: run
    integer(c_int64_t) :: step
    step = c_step(run%handle)
  end function lockstep_step

  !> The step whose weights lockstep_predict uses; -1 = it has none yet.
  function lockstep_weights_step(run) result(step)
    type(lockstep_run), intent(in) :: run
    integer(c_int64_t) :: step
    step = c_weights_step(run%handle)
  end function lockstep_weights_step

  !> On a rank that trains: producers that have not ended.
  function lockstep_producers(run) result(count)
    type(lockstep_run), intent(in) :: run
    integer(c_int64_t) :: count
    count = c_producers(run%handle)
  end function lockstep_producers

  !> Samples that were dropped because the window of a producer was full.
  function lockstep_dropped(run) result(count)
    type(lockstep_run), intent(in) :: run
    integer(c_int64_t) :: count
    count = c_dropped(run%handle)
  end function lockstep_dropped

  function lockstep_parameter_count(run) result(count)
    type(lockstep_run), intent(in) :: run
    integer(c_int64_t) :: count
    count = c_parameter_count(run%handle)
  end function lockstep_parameter_count

  function lockstep_buffer_size(run) result(size)
    type(lockstep_run), intent(in) :: run
    integer(c_int64_t) :: size
    size = c_buffer_size(run%handle)
  end function lockstep_buffer_size

  !> The lanes of this rank: first to first + count - 1, counted from 0.
  subroutine lockstep_lanes(run, first, count, status)
    type(lockstep_run), intent(in) :: run
    integer, intent(out) :: first, count
    integer, intent(out), optional :: status
    integer(c_int64_t) :: begin, lanes
    integer(c_int) :: code
    begin = 0
    lanes = 0
    code = c_lanes(run%handle, begin, lanes)
    first = int(begin)
    count = int(lanes)
    call finish(run%handle, code, status)
  end subroutine lockstep_lanes

  !> The norm of the gradients of the last step before clipping; NaN if it was not computed.
  function lockstep_gradient_norm(run) result(norm)
    type(lockstep_run), intent(in) :: run
    real(c_double) :: norm
    integer(c_int) :: code
    norm = 0
    code = c_gradient_norm(run%handle, norm)
  end function lockstep_gradient_norm

  !> The sentence of the last failed call of a run; without a run, of the last failed call.
  function lockstep_message(run) result(message)
    type(lockstep_run), intent(in), optional :: run
    character(len=:), allocatable :: message
    if (present(run)) then
      message = text_of(c_error(run%handle))
    else
      message = text_of(c_error(c_null_ptr))
    end if
  end function lockstep_message

  function lockstep_version() result(version)
    character(len=:), allocatable :: version
    version = text_of(c_version())
  end function lockstep_version

  function text_of(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i, length
    length = int(c_length(pointer))
    allocate (character(len=length) :: text)
    call c_f_pointer(pointer, letters, [length])
    do i = 1, length
      text(i:i) = letters(i)
    end do
  end function text_of

  subroutine finish(handle, code, status)
    type(c_ptr), intent(in) :: handle
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: status
    if (present(status)) then
      status = code
    else if (code /= 0) then
      call c_fail(handle, code)
    end if
  end subroutine finish

end module lockstep
